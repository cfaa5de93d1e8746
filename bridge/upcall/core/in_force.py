"""The part of the settings that can change while the hub runs, and where it is kept."""

import dataclasses
from typing import Final

from upcall.core.state import KernelSettings
from upcall.model.settings import LiveSettings

OWN: Final = ""
"""The channel under which the hub keeps its own small facts; no channel is called so."""
KEPT_SETTINGS: Final = "settings"
REFUSED_SETTINGS: Final = "refused_settings"
UNTOLD: Final = "untold"


def live_of(settings: KernelSettings) -> LiveSettings:
    """Return the part of *settings* that can change while the hub runs."""
    return LiveSettings(
        people=settings.people,
        policy=settings.policy,
        local_answers=settings.local_answers,
        allow_direct_clients=settings.allow_direct_clients,
        allow_defaults=settings.allow_defaults,
        redact=settings.redact,
        confirm_changes=settings.confirm_changes,
        adapters=settings.adapters,
    )


def with_live(settings: KernelSettings, live: LiveSettings) -> KernelSettings:
    """Return *settings* with what of them can change while the hub runs."""
    return dataclasses.replace(
        settings,
        people=live.people,
        operators={
            (channel, identity): name
            for name, person in live.people.items()
            for channel, identity in person.identities.items()
        },
        policy=live.policy,
        local_answers=live.local_answers,
        allow_direct_clients=live.allow_direct_clients,
        allow_defaults=live.allow_defaults,
        redact=live.redact,
        confirm_changes=live.confirm_changes,
        adapters=live.adapters,
    )
