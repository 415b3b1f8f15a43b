"""Who may ask the scheduler: decided by the API server, as Kubernetes' components delegate it.

A caller is who its client certificate says, else who the API server takes its bearer token for
(TokenReview); it may call a route if RBAC lets it (SubjectAccessReview for the route as a
nonResourceURL, verb = HTTP method in lower case). Both answers are kept for ten seconds, as in
k8s.io/apiserver (DelegatingAuthenticationOptions, DelegatingAuthorizationOptions).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import orjson
from aiohttp import web

from rte import errors
from rte.telemetry.connections import caller_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterable

    from rte.kube.client import Client
    from rte.reader.json import JsonObject

logger = logging.getLogger(__name__)

_K = TypeVar("_K")
_V = TypeVar("_V")

#: Of a request: the name of the user who makes it.
CALLER: Final = web.RequestKey("rte-caller", str)

_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

#: An answer of the API server holds so long.
_KEPT_S = 10.0
#: Callers are few; more answers than these are an attack, and cost a question each.
_MOST_KEPT = 1024
#: A token that was good so long ago is asked about again before all that were never seen.
_REMEMBERED_S = 600.0
#: Tokens never seen before that are asked about in a second, of one address and of all; four times
#: as many at first.
_NEW_OF_CALLER, _NEW_OF_ALL = 5.0, 20.0
#: Questions to the API server at once, and those that wait for it.
CONNECTIONS, _MOST_WAITING = 4, 32


@dataclass(frozen=True, slots=True)
class User:
    """Who calls, in the words of a SubjectAccessReview."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class _TooMany(errors.RteError):
    """More is asked than may be asked of the API server."""


class Access:
    """Wraps routes, so that only callers with the right get through.

    Whoever calls without a right costs the API server little, and nobody else anything: questions
    are bounded in number and rate, and go out over connections of their own.

    Args:
        client: the API server, which decides; nothing else uses its :data:`CONNECTIONS`.
        clock: seconds of a monotonic clock.
    """

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._users: dict[bytes, tuple[float, User]] = {}
        self._strangers: dict[bytes, float] = {}
        self._verdicts: dict[tuple[User, str, str], tuple[float, bool]] = {}
        self._new = _Allowance(_NEW_OF_ALL)
        self._new_of: dict[str, _Allowance] = {}
        self._asking: dict[Hashable, asyncio.Task[Any]] = {}

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
            except _TooMany as error:
                return _refuse(429, str(error))
            except errors.KubeError as error:
                logger.warning("a caller cannot be checked: %s", error)
                return _refuse(503, f"the caller cannot be checked: {error}")
            request[CALLER] = user.name
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
        if now < self._strangers.get(key, 0.0):
            return None
        remembered = known is not None and now < known[0] + _REMEMBERED_S
        if not remembered and key not in self._asking:
            self._admit_stranger(caller_of(request.remote or ""), now)
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        status = await self._ask(key, _TOKEN_REVIEWS, body)
        self._users.pop(key, None)
        if not status.get("authenticated"):
            _keep(self._strangers, key, now + _KEPT_S)
            return None
        user = _user(status.get("user") or {})
        _keep(self._users, key, (now + _KEPT_S, user))
        return user

    def _admit_stranger(self, caller: str, now: float) -> None:
        own = self._new_of.pop(caller, None) or _Allowance(_NEW_OF_CALLER)
        _keep(self._new_of, caller, own)
        if not (own.take(now) and self._new.take(now)):
            raise _TooMany("too many tokens that nobody has seen before: try again in a second")

    async def _ask(self, key: Hashable, path: str, body: JsonObject) -> JsonObject:
        """The status of a review; who asks the same gets the same answer."""
        task = self._asking.get(key)
        if task is None:
            if len(self._asking) >= _MOST_WAITING:
                raise _TooMany("too many callers wait to be checked: try again in a second")
            task = asyncio.create_task(self._client.create(path, body), name="review")
            self._asking[key] = task
            task.add_done_callback(lambda done: self._asked(key, done))
        # Who hangs up ends nobody else's question.
        review = await asyncio.shield(task)
        return review.get("status") or {}

    def _asked(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        del self._asking[key]
        if not task.cancelled():
            task.exception()  # whoever asked may have hung up

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
        status = await self._ask(key, _ACCESS_REVIEWS, body)
        allowed = bool(status.get("allowed")) and not status.get("denied")
        _keep(self._verdicts, key, (now + _KEPT_S, allowed))
        return allowed


class _Allowance:
    """So many a second; what was not taken adds up to four seconds' worth."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._left, self._at = 4 * per_s, 0.0

    def take(self, now: float) -> bool:
        """Whether one more is allowed, which is then taken."""
        self._left = min(4 * self._per_s, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


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


def _user(status: JsonObject) -> User:
    return User(
        name=str(status.get("username") or ""),
        groups=tuple(status.get("groups") or ()),
        uid=str(status.get("uid") or ""),
        extra=tuple(
            (name, tuple(values)) for name, values in sorted((status.get("extra") or {}).items())
        ),
    )


def _keep(answers: dict[_K, _V], key: _K, answer: _V) -> None:
    if len(answers) >= _MOST_KEPT and key not in answers:
        del answers[next(iter(answers))]
    answers[key] = answer


def _refuse(status: int, text: str) -> web.Response:
    headers = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}}.get(status)
    body = orjson.dumps({"error": text, "Error": text})
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)
