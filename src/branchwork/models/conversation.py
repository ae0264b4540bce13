"""What of a conversation a model gets to see, independent of any wire format.

Messages become *groups*: one user-side message, or one reply with the results of all its calls. The rules are
those of `Grouper`; whatever the order in which messages were recorded, the groups are a conversation that strict
servers accept: it starts on the user's side, two replies never touch, every call is answered exactly once and at
once, ids of calls are unique.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from msgspec import Struct

from branchwork.models.base import ModelInfo
from branchwork.session.entries import (
    AssistantMessage,
    AssistantPart,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    Image,
    Message,
    ResultPart,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    UserPart,
)

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""What both OpenAI and Anthropic take."""

NO_RESULT = "No result: the call was interrupted before it finished."
NO_OUTPUT = "(no output)"
CONTINUE = "Continue."
"""Stands on the user's side where the record has nothing between two replies, or after the last one."""


class Rules(Struct, frozen=True, kw_only=True):
    """For whom the conversation is prepared. `api`, `provider` and `model` decide whose thinking is replayed."""

    api: str
    provider: str
    model: str
    images: bool
    id_length: int | None = None
    """Exact length of call ids, letters and digits only (Mistral: 9). None: up to 40 of `A-Za-z0-9_-`,
    the limit of OpenAI (40 characters) and the alphabet of Anthropic together."""


def rules_for(info: ModelInfo, id_length: int | None = None) -> Rules:
    return Rules(api=info.api, provider=info.provider, model=info.id, images=info.images, id_length=id_length)


class UserTurn(Struct, frozen=True, gc=False):
    """`content` is never empty, its texts are never blank."""

    content: tuple[UserPart, ...]


class Result(Struct, frozen=True, gc=False):
    """The answer to one call; `content` is never empty."""

    call_id: str
    name: str
    content: tuple[ResultPart, ...]
    is_error: bool


class AssistantTurn(Struct, frozen=True, gc=False):
    """One reply and the results of its calls, in the order of the calls. It has text or calls, or both.

    Thinking is that of the very model it is prepared for, signed or not.
    """

    content: tuple[AssistantPart, ...]
    results: tuple[Result, ...]


Group: TypeAlias = UserTurn | AssistantTurn


def groups_of(messages: Iterable[Message], rules: Rules) -> list[Group]:
    """The whole conversation at once."""
    grouper = Grouper(rules)
    for message in messages:
        grouper.add(message)
    return grouper.open()


class _Slot:
    """A call that waits for its result."""

    __slots__ = ("call", "result", "taken")

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.result: ToolResultMessage | None = None
        self.taken = False


class _Reply:
    __slots__ = ("content", "slots")

    def __init__(self, content: tuple[AssistantPart, ...], slots: list[_Slot]) -> None:
        self.content = content
        self.slots = slots


class Grouper:
    """Builds groups from messages as they come.

    A group is closed when a later reply follows it; what is closed does not change any more, with one exception:
    a result that comes after it was taken as missing. Then `stale` is set, and the caller starts again with all
    messages. The rules:

    - replies that ended in error or were aborted are left out, and so are results of their calls;
    - a result goes to the latest call with its id, wherever it was recorded; of several the first wins; one
      without a call is left out; a call without one gets an error result;
    - ids of calls that a strict server would refuse, or that occur again, are replaced (the same input always
      gives the same ids);
    - replies with neither text nor calls are left out (a reply that ends in thinking is refused by Anthropic:
      "The final block in an assistant message cannot be `thinking`"), and so are blank texts;
    - images become a note when the model takes none; lone surrogates are removed from all strings.
    """

    def __init__(self, rules: Rules) -> None:
        self.stale = False
        self._rules = rules
        self._pending: list[UserTurn | _Reply] = []
        self._closed = 0
        self._needs_user = True
        self._unanswered: dict[str, list[_Slot]] = {}
        self._ids: set[str] = set()
        exact = rules.id_length
        pattern = "[A-Za-z0-9_-]{1,40}" if exact is None else f"[A-Za-z0-9]{{{exact}}}"
        self._valid_id = re.compile(pattern).fullmatch

    @property
    def on_user_side(self) -> bool:
        """Whether the last group ends with a user-side message or with results."""
        return not self._needs_user

    def add(self, message: Message) -> None:
        match message:
            case AssistantMessage():
                self._add_reply(message)
            case ToolResultMessage():
                self._add_result(message)
            case SystemMessage():
                pass  # the prompt's state; requests carry it apart from the conversation
            case _:
                turn = user_turn(message, self._rules)
                if turn is not None:
                    self._pending.append(turn)
                    self._needs_user = False

    def take_closed(self) -> list[Group]:
        """The groups that closed since the last time."""
        taken = self._pending[: self._closed]
        del self._pending[: self._closed]
        self._closed = 0
        for item in taken:
            if isinstance(item, _Reply):
                for slot in item.slots:
                    slot.taken = True
        return [self._build(item) for item in taken]

    def open(self, extra: Sequence[Message] = ()) -> list[Group]:
        """The groups not taken yet, then `extra`, which must be user-side messages; nothing is consumed."""
        groups = [self._build(item) for item in self._pending]
        turns = [turn for message in extra if (turn := user_turn(message, self._rules)) is not None]
        if not turns and self._needs_user and groups:
            turns = [_continue()]
        return [*groups, *turns]

    # ---- adding -------------------------------------------------------------------------------------

    def _add_reply(self, message: AssistantMessage) -> None:
        if message.stop_reason in ("error", "aborted"):
            for call in message.tool_calls:
                self._unanswered.pop(call.id, None)  # else its result would go to an older call with that id
            return
        content, slots = self._reply_parts(message)
        if not slots and not any(isinstance(part, Text) for part in content):
            return
        if self._needs_user:
            self._pending.append(_continue())
        self._closed = len(self._pending)
        self._pending.append(_Reply(content, slots))
        self._needs_user = not slots

    def _reply_parts(self, message: AssistantMessage) -> tuple[tuple[AssistantPart, ...], list[_Slot]]:
        rules = self._rules
        same = message.model == rules.model and message.provider == rules.provider and message.api == rules.api
        content: list[AssistantPart] = []
        slots: list[_Slot] = []
        by_id: dict[str, list[_Slot]] = {}
        for part in message.content:
            match part:
                case Text():
                    if not _blank(part.text):
                        content.append(_text(part) if same else _unsigned(part))
                case Thinking(thinking=text, thinking_signature=signature, redacted=redacted):
                    if same and (signature or not _blank(text)):
                        content.append(Thinking(clean(text), signature, redacted))
                case ToolCall():
                    call = self._call(part, same)
                    slot = _Slot(call)
                    content.append(call)
                    slots.append(slot)
                    by_id.setdefault(part.id, []).append(slot)
        self._unanswered |= by_id
        return tuple(content), slots

    def _call(self, call: ToolCall, same: bool) -> ToolCall:
        call_id, name, arguments = self._unique_id(call.id), tool_name(call.name), clean_json(call.arguments)
        signature = call.thought_signature if same else None
        kept = call_id is call.id and name is call.name and arguments is call.arguments
        if kept and signature is call.thought_signature:
            return call
        return ToolCall(id=call_id, name=name, arguments=arguments, thought_signature=signature)

    def _unique_id(self, given: str) -> str:
        if given not in self._ids and self._valid_id(given) is not None:
            self._ids.add(given)
            return given
        exact = self._rules.id_length
        wanted, attempt = given, 0
        if self._valid_id(given) is None:
            wanted = _digest(given, exact)
        while wanted in self._ids:
            attempt += 1
            wanted = _digest(f"{attempt} {given}", exact)
        self._ids.add(wanted)
        return wanted

    def _add_result(self, message: ToolResultMessage) -> None:
        slots = self._unanswered.get(message.tool_call_id)
        if not slots:
            return
        slot = slots.pop(0)
        if not slots:
            del self._unanswered[message.tool_call_id]
        slot.result = message
        self.stale = self.stale or slot.taken

    # ---- building -----------------------------------------------------------------------------------

    def _build(self, item: UserTurn | _Reply) -> Group:
        if isinstance(item, UserTurn):
            return item
        return AssistantTurn(item.content, tuple([self._result(slot) for slot in item.slots]))

    def _result(self, slot: _Slot) -> Result:
        message = slot.result
        if message is None:
            return Result(slot.call.id, slot.call.name, (Text(NO_RESULT),), is_error=True)
        content = _parts(message.content, self._rules) or (Text(NO_OUTPUT),)
        return Result(slot.call.id, slot.call.name, content, message.is_error)


# ---- user-side messages -----------------------------------------------------------------------------


def user_turn(message: Message, rules: Rules) -> UserTurn | None:
    """The message as the model sees it on the user's side; None when it sees nothing of it."""
    match message:
        case UserMessage(content=content) | CustomMessage(content=content):
            parts = _parts(content, rules)
        case BashExecutionMessage():
            parts = () if message.exclude_from_context else _parts(_shell_text(message), rules)
        case BranchSummaryMessage(summary=summary):
            parts = _parts(_summary_text("What was tried on another branch of this conversation", summary), rules)
        case CompactionSummaryMessage(summary=summary):
            parts = _parts(_summary_text("This summary stands for the earlier conversation", summary), rules)
        case _:
            parts = ()
    return UserTurn(parts) if parts else None


def _continue() -> UserTurn:
    return UserTurn((Text(CONTINUE),))


def _parts(content: str | Sequence[Text | Image], rules: Rules) -> tuple[Text | Image, ...]:
    if isinstance(content, str):
        return () if _blank(content) else (Text(clean(content)),)
    if len(content) == 1 and isinstance(content[0], Text) and content[0].text.isascii():
        return () if _blank(content[0].text) else tuple(content)
    parts: list[Text | Image] = []
    for part in content:
        match part:
            case Text():
                if not _blank(part.text):
                    parts.append(_text(part))
            case Image(mime_type=kind, data=data):
                parts.append(part if rules.images and kind in IMAGE_TYPES and data else Text(_no_image(kind, rules)))
    return tuple(parts)


def _blank(text: str) -> bool:
    return not text or text.isspace()


def _text(part: Text) -> Text:
    text = clean(part.text)
    return part if text is part.text else Text(text, part.text_signature)


def _unsigned(part: Text) -> Text:
    return _text(part) if part.text_signature is None else Text(clean(part.text))


def _no_image(kind: str, rules: Rules) -> str:
    reason = f"no support for {kind}" if rules.images else "this model takes no images"
    return clean(f"[image left out: {reason}]")


def _shell_text(message: BashExecutionMessage) -> str:
    command, output = message.command, message.output.rstrip("\n")
    tick = _ticks(command, 1)
    pad = " " if len(tick) > 1 else ""
    lines = [f"Ran {tick}{pad}{command}{pad}{tick}"]
    if output.strip():
        fence = _ticks(output, 3)
        lines += [fence, output, fence]
    else:
        lines.append(NO_OUTPUT)
    if message.cancelled:
        lines.append("The command was cancelled.")
    elif message.exit_code:
        lines.append(f"Exit code {message.exit_code}.")
    if message.truncated and message.full_output_path:
        lines.append(f"Only part of the output is shown; all of it is in {message.full_output_path}")
    return "\n".join(lines)


def _ticks(text: str, at_least: int) -> str:
    """A run of backticks longer than any in `text`."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(at_least, longest + 1)


def _summary_text(lead: str, summary: str) -> str:
    return f"{lead}:\n\n<summary>\n{summary.strip()}\n</summary>"


# ---- strings ----------------------------------------------------------------------------------------


def clean(text: str) -> str:
    """`text` without lone surrogates, which no JSON text can hold; pairs of them become their character."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")
    return text


def clean_json(value: Any) -> Any:
    """JSON data with every string and key cleaned; the very same object where all of them are clean."""
    return value if _is_clean(value) else _cleaned(value)


def _is_clean(value: Any) -> bool:
    if isinstance(value, str):
        return value.isascii() or clean(value) is value
    if isinstance(value, dict):
        return (all(map(str.isascii, value)) or all(map(_is_clean, value))) and all(map(_is_clean, value.values()))
    return all(map(_is_clean, value)) if isinstance(value, list) else True


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key): _cleaned(item) for key, item in value.items()}
    return [_cleaned(item) for item in value] if isinstance(value, list) else value


@lru_cache(maxsize=256)
def tool_name(name: str) -> str:
    """A name that servers accept in a replayed call (1 to 64 of `A-Za-z0-9_-`), whatever the model made up."""
    valid = re.sub("[^A-Za-z0-9_-]", "_", name)[:64] or "unknown"
    return name if valid == name else valid


def _digest(text: str, length: int | None) -> str:
    import hashlib

    value = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"call_{value[:24]}" if length is None else value[:length]
