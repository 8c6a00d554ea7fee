"""Bytes of a record batch into typed columns. Strict: what is not exactly of the declared type is rejected, with a reason."""

from consumers.formats.decoder import Decoded, Decoder, Reject, ValueDecoder
from consumers.formats.json import JsonDecoder
from consumers.formats.raw import RawDecoder
from consumers.formats.records import RecordDecoder

__all__ = ["Decoded", "Decoder", "JsonDecoder", "RawDecoder", "RecordDecoder", "Reject", "ValueDecoder"]
