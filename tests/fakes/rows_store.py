"""A store of rows in memory, with the constraints of the real one and nothing of SQLite."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from upcall.model.effects import (
    DropButtons,
    DropCard,
    DropText,
    DropTokens,
    EndClaim,
    SaveGate,
    SaveLock,
    SaveLogin,
    SaveRevoked,
    SaveRoot,
    SaveSetting,
    SaveVerbosity,
    Write,
)
from upcall.model.ids import ActionId, AskId, SessionId
from upcall.model.rows import (
    AskRow,
    AuditRow,
    CardRow,
    ClaimRow,
    ConversationRow,
    CopyRow,
    DeliveryRow,
    HeldText,
    HubButton,
    InboundRow,
    LockRow,
    NoticeRow,
    PairingRow,
    RetiredToken,
    SessionRow,
    Snapshot,
    TokenRow,
    VoteRow,
)
from upcall.model.struct import replaced

if TYPE_CHECKING:
    from upcall.model.platform import LoginKept
    from upcall.model.policy import Verbosity


class Violation(AssertionError):
    """A write that the real store would refuse, or that history forbids."""


class RowsStore:
    """Keeps what a kernel writes, and gives it back as the snapshot of a start.

    Attributes:
        commits: how many transactions were written.
    """

    def __init__(self) -> None:
        self.commits = 0
        self.sessions: dict[SessionId, SessionRow] = {}
        self.asks: dict[AskId, AskRow] = {}
        self.claims: dict[int, ClaimRow] = {}
        self.inbound: dict[tuple[str, str], InboundRow] = {}
        self.conversations: dict[tuple[str, str], ConversationRow] = {}
        self.cards: dict[tuple[AskId, str, str], CardRow] = {}
        self.copies: dict[tuple[str, str, str], CopyRow] = {}
        self.tokens: dict[str, TokenRow] = {}
        self.retired: dict[str, RetiredToken] = {}
        self.buttons: dict[str, HubButton] = {}
        self.texts: dict[int, HeldText] = {}
        self.deliveries: dict[int, DeliveryRow] = {}
        self.notices: dict[int, NoticeRow] = {}
        self.audit: list[AuditRow] = []
        self.gates: dict[str, int] = {}
        self.settings: dict[tuple[str, str], str] = {}
        self.logins: dict[tuple[str, str], LoginKept] = {}
        self.roots: dict[str, None] = {}
        self.verbosities: dict[str, Verbosity] = {}
        self.votes: dict[tuple[AskId, str, str], VoteRow] = {}
        self.pairings: dict[tuple[str, str], PairingRow] = {}
        self.revoked: dict[str, int] = {}
        self.lock: LockRow | None = None
        self._effects: dict[str, int] = {}
        self._open: dict[tuple[SessionId, ActionId], AskId] = {}
        self._live: dict[AskId, int] = {}

    def commit(self, writes: Sequence[Write]) -> None:
        """Write one transaction, in order."""
        self.commits += 1
        for write in writes:
            self._write(write)
        self._check_claims()

    def snapshot(self) -> Snapshot:
        """Return the open rows, as the real store reads them at start."""
        waiting = [row for row in self.deliveries.values() if row.state not in {"done", "dead"}]
        wanted = {row.ask_id for row in self.asks.values() if row.state != "closed"}
        wanted |= {row.ask_id for row in waiting if row.ask_id is not None}
        asks = [row for row in self.asks.values() if row.ask_id in wanted]
        of_asks = {row.session_id for row in asks}
        keyed = sorted(
            (row for row in self.asks.values() if row.key is not None),
            key=lambda row: row.raised_ms,
        )
        return Snapshot(
            sessions=[
                row
                for row in self.sessions.values()
                if row.ended_ms is None or row.session_id in of_asks
            ],
            asks=sorted(asks, key=lambda row: row.raised_ms),
            claims=[row for row in self.claims.values() if row.live and row.ask_id in wanted],
            inbound=list(self.inbound.values()),
            conversations=[row for row in self.conversations.values() if row.state == "open"],
            cards=[row for row in self.cards.values() if row.ask_id in wanted],
            copies=[row for row in self.copies.values() if row.ask_id in wanted],
            tokens=[row for row in self.tokens.values() if row.ask_id in wanted],
            buttons=list(self.buttons.values()),
            texts=list(self.texts.values()),
            deliveries=waiting,
            dead=[
                row
                for row in self.deliveries.values()
                if row.state == "dead" and row.kind not in {"reply", "message", "hold"}
            ],
            former_places={
                (row.key, row.channel): row.place
                for row in self.conversations.values()
                if row.state == "closed"
            },
            gates=dict(self.gates),
            settings=dict(self.settings),
            roots=list(self.roots),
            verbosities=dict(self.verbosities),
            votes=[row for row in self.votes.values() if row.live and row.ask_id in wanted],
            pairings=list(self.pairings.values()),
            revoked=dict(self.revoked),
            lock=self.lock,
            keys={row.key: row.ask_id for row in keyed if row.key is not None},
            last_inbound=max((row.id for row in self.inbound.values()), default=0),
            last_delivery=max(self.deliveries, default=0),
            last_notice=max(self.notices, default=0),
        )

    def _write(self, write: Write) -> None:
        match write:
            case SessionRow():
                self.sessions[write.session_id] = write
            case AskRow():
                self._write_ask(write)
            case ClaimRow():
                self._need_ask(write.ask_id)
                self.claims[write.inbound] = write
                if self._live.setdefault(write.ask_id, write.inbound) != write.inbound:
                    raise Violation(f"two live claims of {write.ask_id}")
            case InboundRow():
                self.inbound[write.channel, write.event_key] = write
            case ConversationRow():
                self.conversations[write.key, write.channel] = write
            case CardRow():
                self._need_ask(write.ask_id)
                self.cards[write.ask_id, write.channel, write.place] = write
            case TokenRow():
                self._need_ask(write.ask_id)
                if write.token in self.tokens or write.token in self.retired:
                    raise Violation(f"token {write.token} is minted twice")
                self.tokens[write.token] = write
            case DeliveryRow():
                self._write_delivery(write)
            case NoticeRow():
                if write.session_id not in self.sessions:
                    raise Violation(f"a notice of an unknown session {write.session_id}")
                self.notices[write.id] = write
            case AuditRow():
                self.audit.append(write)
            case SaveSetting(channel, name, value):
                self.settings.pop((channel, name), None)
                if value is not None:
                    self.settings[channel, name] = value
            case SaveLogin(channel, login):
                self.logins[channel, login.digest] = login
            case SaveRoot(path, gone):
                self.roots.pop(path, None)
                if not gone:
                    self.roots[path] = None
            case SaveGate(scope, closed_until_ms):
                self.gates.pop(scope, None)
                if closed_until_ms:
                    self.gates[scope] = closed_until_ms
            case SaveVerbosity(conversation, level):
                self.verbosities.pop(conversation, None)
                if level is not None:
                    self.verbosities[conversation] = level
            case VoteRow():
                self._need_ask(write.ask_id)
                self.votes[write.ask_id, write.person, write.channel] = write
            case PairingRow():
                self.pairings.pop((write.channel, write.identity), None)
                if not write.gone:
                    self.pairings[write.channel, write.identity] = write
            case SaveRevoked(name, at_ms):
                self.revoked.pop(name, None)
                if at_ms is not None:
                    self.revoked[name] = at_ms
            case SaveLock(lock):
                self.lock = lock
            case DropTokens(ask_id, at_ms):
                for token in [row for row in self.tokens.values() if row.ask_id == ask_id]:
                    del self.tokens[token.token]
                    self._retire(token.token, token.ask_id, token.channel, at_ms)
            case CopyRow():
                self._need_ask(write.ask_id)
                self.copies[write.channel, write.place, write.ref] = write
            case HubButton():
                self.buttons[write.token] = write
            case DropButtons(subject, at_ms):
                for button in [one for one in self.buttons.values() if one.subject == subject]:
                    del self.buttons[button.token]
                    self.retired[button.token] = RetiredToken(
                        ask_id=button.ask_id,
                        channel=button.channel,
                        place=button.place,
                        retired_ms=at_ms,
                    )
            case HeldText():
                self.texts[write.id] = write
            case DropText(text_id):
                self.texts.pop(text_id, None)
            case DropCard(ask_id, channel, shown):
                for key in [key for key in self.cards if key[:2] == (ask_id, channel)]:
                    if shown or self.cards[key].ref is None:
                        del self.cards[key]
            case EndClaim(ask_id):
                number = self._live.pop(ask_id, None)
                if number is not None:
                    self.claims[number] = replaced(self.claims[number], live=False)

    def _retire(self, token: str, ask_id: AskId, channel: str, at_ms: int) -> None:
        places = [
            row.place
            for row in self.cards.values()
            if (row.ask_id, row.channel) == (ask_id, channel)
        ]
        place = places[-1] if places else ""
        self.retired[token] = RetiredToken(
            ask_id=ask_id, channel=channel, place=place, retired_ms=at_ms
        )

    def _write_ask(self, row: AskRow) -> None:
        if row.session_id not in self.sessions:
            raise Violation(f"an ask of an unknown session {row.session_id}")
        before = self.asks.get(row.ask_id)
        if before is not None and before.state == "closed":
            raise Violation(f"the closed ask {row.ask_id} changes")
        if (row.state == "closed") != (row.outcome is not None):
            raise Violation(f"{row.ask_id} is {row.state} with outcome {row.outcome}")
        action = (row.session_id, row.action_id)
        if row.state == "closed":
            self._open.pop(action, None)
        elif self._open.setdefault(action, row.ask_id) != row.ask_id:
            raise Violation(f"{row.ask_id} and {self._open[action]} are open under one action")
        self.asks[row.ask_id] = row

    def _write_delivery(self, row: DeliveryRow) -> None:
        if row.ask_id is not None:
            self._need_ask(row.ask_id)
        if self._effects.setdefault(row.effect, row.id) != row.id:
            raise Violation(f"two deliveries of the effect {row.effect}")
        before = self.deliveries.get(row.id)
        if before is not None and before.state == "done":
            raise Violation(f"the delivery {row.id} was over and changes")
        # As the store does: the bytes of a secret are not kept.
        self.deliveries[row.id] = replaced(row, body=b"", secret=False) if row.secret else row

    def _need_ask(self, ask_id: AskId) -> None:
        if ask_id not in self.asks:
            raise Violation(f"a row of an unknown ask {ask_id}")

    def _check_claims(self) -> None:
        for ask_id in self._live:
            if self.asks[ask_id].state != "claimed":
                raise Violation(f"a live claim of {ask_id}, which is {self.asks[ask_id].state}")
