"""Every route of the inbox, as its code registers them."""

from dataclasses import dataclass
from typing import Final

from fakes.web_hub import FakeHub
from upcall_adapters.web.assets import read_assets
from upcall_adapters.web.gate import Gate
from upcall_adapters.web.guards import Doors
from upcall_adapters.web.login import Logins
from upcall_adapters.web.pages import Pages
from upcall_adapters.web.parts import Parts
from upcall_adapters.web.routes import application

# What anybody may have who got past the door: the page itself, which holds nothing, ways to
# sign in, which have secrets of their own, and two words for a supervisor. A new route is
# not among them, so it is tested as one that needs a login.
WITHOUT_LOGIN: Final = frozenset(
    {"/healthz", "/readyz", "/metrics", "/api/login", "/api/browser", "/api/browser/wait"}
)


@dataclass(frozen=True)
class Route:
    """A method and a path that reaches it."""

    method: str
    path: str

    @property
    def needs_login(self) -> bool:
        return self.path not in WITHOUT_LOGIN and self.path not in read_assets()


def all_routes() -> list[Route]:
    """Return every route of the application, with `x` for what varies; HEAD is GET's."""
    hub = FakeHub()
    logins = Logins(hub.clock, bytes, hub, hub.put)
    parts = Parts(
        seams=hub.seams(),
        doors=Doors(1),
        pages=Pages(lambda pages: None),
        logins=logins,
        put=hub.put,
        own_uid=None,
    )
    app = application(parts, read_assets(), Gate(None))
    found = []
    for route in app.router.routes():
        resource = route.resource
        assert resource is not None
        path = resource.canonical.replace("{id}", "x")
        assert "{" not in path, f"say what stands for the parameter of {path}"
        if route.method != "HEAD":
            found.append(Route(route.method, path))
    return found
