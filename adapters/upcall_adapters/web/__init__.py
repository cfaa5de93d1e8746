"""The web inbox: a page on loopback that shows every open ask and takes the answers."""

from upcall_adapters.web.spec import SPEC

__all__ = ["SPEC"]
