"""Who may ask the scheduler: decided by the API server, as Kubernetes' components delegate it.

A caller is who its client certificate says, else who the API server takes its bearer token for
(TokenReview); it may call a route if RBAC lets it (SubjectAccessReview for the route as a
nonResourceURL, verb = HTTP method in lower case). Both answers are kept for ten seconds, as in
k8s.io/apiserver (DelegatingAuthenticationOptions, DelegatingAuthorizationOptions).
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from rte import errors

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from rte.kube.client import Client

logger = logging.getLogger(__name__)

_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

#: An answer of the API server holds so long.
_KEPT_S = 10.0
#: Callers are few; more than these are an attack, and cost a question each.
_MOST_KEPT = 1024


@dataclass(frozen=True, slots=True)
class User:
    """Who calls, in the words of a SubjectAccessReview."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Access:
    """Wraps routes, so that only callers with the right get through.

    Args:
        client: the API server, which decides.
        clock: seconds of a monotonic clock.
    """

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._users: dict[bytes, tuple[float, User | None]] = {}
        self._verdicts: dict[tuple[User, str, str], tuple[float, bool]] = {}

    def protect(self, routes: Iterable[web.RouteDef]) -> list[web.RouteDef]:
        """The same routes, each behind the question whether its caller may."""
        return [replace_handler(route, self._guarded(route.handler)) for route in routes]

    def _guarded(self, handler: Any) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def guard(request: web.Request) -> web.StreamResponse:
            try:
                user = user_of_certificate(request) or await self._user_of_token(request)
                if user is None:
                    return _refuse(401, "give a bearer token, or a client certificate")
                if not await self._may(user, request.method.lower(), request.path):
                    return _refuse(
                        403,
                        f"{user.name} may not {request.method.lower()} {request.path}: "
                        "allow it to that nonResourceURL by a ClusterRole",
                    )
            except errors.KubeError as error:
                logger.warning("a caller cannot be checked: %s", error)
                return _refuse(503, f"the caller cannot be checked: {error}")
            answer: web.StreamResponse = await handler(request)
            return answer

        return guard

    async def _user_of_token(self, request: web.Request) -> User | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return None
        key, now = hashlib.sha256(token.encode()).digest(), self._clock()
        known = self._users.get(key)
        if known is not None and now < known[0]:
            return known[1]
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        status = (await self._client.create(_TOKEN_REVIEWS, body)).get("status") or {}
        user = _user(status.get("user") or {}) if status.get("authenticated") else None
        _keep(self._users, key, (now + _KEPT_S, user))
        return user

    async def _may(self, user: User, verb: str, path: str) -> bool:
        key, now = (user, verb, path), self._clock()
        known = self._verdicts.get(key)
        if known is not None and now < known[0]:
            return known[1]
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.name,
                "groups": list(user.groups),
                "uid": user.uid,
                "extra": {name: list(values) for name, values in user.extra},
                "nonResourceAttributes": {"path": path, "verb": verb},
            },
        }
        status = (await self._client.create(_ACCESS_REVIEWS, body)).get("status") or {}
        allowed = bool(status.get("allowed")) and not status.get("denied")
        _keep(self._verdicts, key, (now + _KEPT_S, allowed))
        return allowed


def replace_handler(route: web.RouteDef, handler: Any) -> web.RouteDef:
    """The route with another handler."""
    return web.RouteDef(route.method, route.path, handler, route.kwargs)


def user_of_certificate(request: web.Request) -> User | None:
    """Common name and organisations of a client certificate that the listener has verified."""
    transport = request.transport
    certificate = transport.get_extra_info("peercert") if transport is not None else None
    if not certificate:
        return None
    parts = [part for parts in certificate.get("subject") or () for part in parts]
    names = [value for key, value in parts if key == "commonName"]
    groups = tuple(value for key, value in parts if key == "organizationName")
    # As k8s.io/apiserver's CommonNameUserConversion; whoever is authenticated is in this group.
    return User(names[0], (*groups, "system:authenticated")) if names else None


def _user(status: dict[str, Any]) -> User:
    return User(
        name=str(status.get("username") or ""),
        groups=tuple(status.get("groups") or ()),
        uid=str(status.get("uid") or ""),
        extra=tuple(
            (name, tuple(values)) for name, values in sorted((status.get("extra") or {}).items())
        ),
    )


def _keep(answers: dict[Any, Any], key: Any, answer: Any) -> None:
    if len(answers) >= _MOST_KEPT:
        answers.clear()
    answers[key] = answer


def _refuse(status: int, text: str) -> web.Response:
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    body = orjson.dumps({"error": text, "Error": text})
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)
