"""A service that was chosen to be stopped, and the words about it."""

from dataclasses import dataclass

from exhume.model.audit import Judged, Needed, Service
from exhume.model.remedy import Effect, Risk
from exhume.remedy.services.effects import effects_of


@dataclass(frozen=True, slots=True)
class Chosen:
    """A service that is to be stopped, with what the audit says of it (None: nothing), and the cause that led to it."""

    service: Service
    judged: Judged | None = None
    cause: str = ""

    @property
    def why(self) -> str:
        """Why it is to be stopped."""
        said = list(self.judged.explained) if self.judged is not None else []
        if self.judged is not None and self.judged.need.needed is Needed.NO:
            said.append(self.judged.need.why)
        return "; ".join(said) or f"it was asked for; {self.service.key} is {self.service.state or 'in no known state'}"

    @property
    def risk(self) -> Risk:
        if self.judged is not None and self.judged.need.needed is Needed.YES:
            return Risk.HIGH
        return Risk.LOW if self.judged is not None and self.judged.surely_useless else Risk.MEDIUM

    @property
    def harm(self) -> str:
        if self.judged is None or self.judged.need.needed is Needed.UNKNOWN:
            return "what it does is no longer done; whether anything here needs that is not known"
        needed = self.judged.need.needed is Needed.YES
        return f"{'it is needed' if needed else 'none that is known'}: {self.judged.need.why}"

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What should change when it is stopped."""
        return effects_of(self.service, self.judged, self.cause)
