# What tools answer, as scripts get it.
import json


PRINTED_AS = "_llmc_printed_as"  # host.rs


class Fields(dict):
    """A tool's document: its fields are keys and attributes, and it prints as the text that a model reads."""

    _printed_as = None

    def __getattr__(self, name):
        try:
            return answer(self[name])
        except KeyError:
            raise AttributeError(f"the result has no field {name!r}; it has {', '.join(self)}") from None

    def __str__(self):
        if self._printed_as is not None:
            return self._printed_as
        return json.dumps(self, ensure_ascii=False, separators=(",", ":"))


class Text(str):
    """A tool's text."""

    @property
    def text(self):
        return str.__str__(self)


class CommandText(Text):
    """What a command printed, with its fields as keys and attributes. A test run is shown as the text that a model reads."""

    _printed_as = None

    def __new__(cls, fields):
        # Unless it succeeded, also how it ended and what the server says about it.
        code = fields["exit_code"]
        parts = [fields["stdout"], fields["stderr"], f"exit {code}" if code else ""]
        notes = fields.get("meta", {}).get("notes") if code != 0 else None
        if notes:
            parts.append("[" + "; ".join(notes) + "]")
        made = super().__new__(cls, "\n".join(part.rstrip("\n") for part in parts if part))
        made.fields = fields
        made.keys, made.values, made.items, made.get = fields.keys, fields.values, fields.items, fields.get
        return made

    def __str__(self):
        return str.__str__(self) if self._printed_as is None else self._printed_as

    def __getattr__(self, name):
        if name == "fields":
            raise AttributeError(name)
        return getattr(self.fields, name)

    def __getitem__(self, key):
        return self.fields[key] if isinstance(key, str) else super().__getitem__(key)

    def __contains__(self, text):
        return text in self.fields or super().__contains__(text)

    def __reduce__(self):
        return CommandText, (self.fields,)


class Names(list):
    """A list of names, which prints one a line."""

    def __str__(self):
        return "\n".join(map(str, self))


def answer(value):
    """A tool's result as a script gets it; documents in it are `Fields` already."""
    if isinstance(value, str):
        return Text(value)
    if isinstance(value, Fields):
        printed_as = value.pop(PRINTED_AS, None)
        if {"stdout", "stderr", "exit_code"} <= value.keys():
            value = CommandText(value)
        if printed_as is not None:
            value._printed_as = printed_as
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return Names(value)
    return value


