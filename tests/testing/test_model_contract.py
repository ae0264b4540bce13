"""The contract suite accepts a model that keeps its promises and finds the ones that do not."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from branchwork.models.base import (
    Model,
    ModelFailure,
    ModelInfo,
    ModelRequest,
    ReplyEnd,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStart,
)
from branchwork.models.scripted import ScriptedModel
from branchwork.testing import model_contract as contract
from branchwork.testing.model_contract import (
    HTTP_CHECKS,
    MODEL_CHECKS,
    Check,
    ContractBroken,
    Rig,
    RigMaker,
    check_name,
    scripted_rig,
)
from branchwork.testing.script import Reply

Change = Callable[[StreamEvent], Sequence[StreamEvent]]


class Changed:
    """A scripted model whose events pass through `change` on their way out."""

    def __init__(self, inner: ScriptedModel, change: Change) -> None:
        self._inner, self._change = inner, change

    @property
    def info(self) -> ModelInfo:
        return self._inner.info

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        async for event in self._inner.stream(request):
            for changed in self._change(event):
                yield changed

    async def aclose(self) -> None:
        await self._inner.aclose()


def rig_of(wrap: Callable[[ScriptedModel], Model]) -> RigMaker:
    @asynccontextmanager
    async def make_rig(answers: Sequence[Reply]) -> AsyncIterator[Rig]:
        async with scripted_rig(answers) as rig:
            assert isinstance(rig.model, ScriptedModel)
            yield Rig(wrap(rig.model))

    def typed(answers: Sequence[Reply]) -> AbstractAsyncContextManager[Rig]:
        return make_rig(answers)

    return typed


@pytest.mark.parametrize("check", [*MODEL_CHECKS], ids=check_name)
async def test_the_scripted_model_keeps_the_contract(check: Check) -> None:
    await check(scripted_rig)


async def test_all_checks_can_be_run_at_once() -> None:
    await contract.check_model(scripted_rig)


def test_every_check_is_in_a_list() -> None:
    written = {
        name
        for name, value in vars(contract).items()
        if getattr(value, "__module__", "") == contract.__name__ and "make_rig" in getattr(value, "__annotations__", {})
    }
    assert written - {"check_model"} == {check_name(check) for check in (*MODEL_CHECKS, *HTTP_CHECKS)}


def end_twice(event: StreamEvent) -> list[StreamEvent]:
    return [event, event] if isinstance(event, ReplyEnd) else [event]


def no_end(event: StreamEvent) -> list[StreamEvent]:
    return [] if isinstance(event, ReplyEnd) else [event]


def one_index(event: StreamEvent) -> list[StreamEvent]:
    match event:
        case ToolCallStart(id=call_id, name=name):
            return [ToolCallStart(0, call_id, name)]
        case ToolCallDelta(text=text):
            return [ToolCallDelta(0, text)]
        case _:
            return [event]


def no_thinking(event: StreamEvent) -> list[StreamEvent]:
    return [] if isinstance(event, ThinkingDelta) else [event]


def lost_text(event: StreamEvent) -> list[StreamEvent]:
    return [TextDelta(event.index, event.text.strip())] if isinstance(event, TextDelta) else [event]


def mended_arguments(event: StreamEvent) -> list[StreamEvent]:
    return [ToolCallDelta(event.index, event.text + '"}')] if isinstance(event, ToolCallDelta) else [event]


def always_stop(event: StreamEvent) -> list[StreamEvent]:
    return [ReplyEnd(stop_reason="stop")] if isinstance(event, ReplyEnd) else [event]


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (end_twice, contract.the_end_comes_last_and_once),
        (no_end, contract.the_end_comes_last_and_once),
        (lost_text, contract.text_is_streamed_in_pieces),
        (no_thinking, contract.parts_of_all_kinds_arrive_whole_and_in_order),
        (one_index, contract.parallel_calls_keep_their_indexes_apart),
        (mended_arguments, contract.broken_arguments_are_passed_on_as_they_came),
        (always_stop, contract.an_answer_cut_at_the_output_limit_says_so),
        (always_stop, contract.usage_keeps_cached_tokens_apart),
    ],
)
async def test_a_broken_stream_is_found(change: Change, check: Check) -> None:
    with pytest.raises(ContractBroken):
        await check(rig_of(lambda model: Changed(model, change)))


class Forgiving(Changed):
    """Ends a failed stream as if it had been complete."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        try:
            async for event in self._inner.stream(request):
                yield event
        except ModelFailure:
            yield ReplyEnd(stop_reason="stop")


class Vague(Changed):
    """Calls every failure a server's, and forgets the rest."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        try:
            async for event in self._inner.stream(request):
                yield event
        except ModelFailure as failure:
            raise ModelFailure("server", str(failure)) from failure


@pytest.mark.parametrize("kind", [Forgiving, Vague])
@pytest.mark.parametrize(
    "check",
    [
        contract.a_cut_stream_is_a_lost_connection,
        contract.refusals_have_their_kind,
        contract.the_wait_that_the_server_asks_for_is_told,
    ],
)
async def test_a_blurred_failure_is_found(kind: type[Changed], check: Check) -> None:
    with pytest.raises(ContractBroken):
        await check(rig_of(lambda model: kind(model, lambda event: [event])))
