"""Text that strangers wrote, such as a record's value, where it is shown or written down: some characters may be orders there."""


def printable(text: str, but: str = "") -> str:
    """The text with all escaped that cannot be seen, such as line breaks and a terminal's codes, but for the characters `but`."""
    return "".join(each if each.isprintable() or each in but else ascii(each)[1:-1] for each in text)
