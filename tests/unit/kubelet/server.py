"""A real gRPC server on a real Unix socket that answers as it is told."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from rte.kubelet._pb import podresources_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

REQUESTS = {
    "List": pb.ListPodResourcesRequest,
    "GetAllocatableResources": pb.AllocatableResourcesRequest,
    "Get": pb.GetPodResourcesRequest,
}


@asynccontextmanager
async def serve(socket: Path, answers: Mapping[str, Any]) -> AsyncIterator[None]:
    """``answers``: method -> message or bytes, (status code, details), or a coroutine function."""

    def handler(method: str) -> grpc.RpcMethodHandler[Any, Any]:
        async def behave(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            answer = answers[method]
            if callable(answer):
                answer = await answer(request)
            if isinstance(answer, tuple):
                await context.abort(*answer)
            return answer

        return grpc.unary_unary_rpc_method_handler(
            behave,
            request_deserializer=REQUESTS[method].FromString,
            response_serializer=lambda answer: (
                answer if isinstance(answer, bytes) else answer.SerializeToString()
            ),
        )

    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                "v1.PodResourcesLister", {method: handler(method) for method in answers}
            ),
        )
    )
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)
