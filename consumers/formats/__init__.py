"""Bytes of a record batch into typed columns. Strict: what is not exactly of the declared type is rejected, with a reason."""

from consumers.config import ConsumerConfig
from consumers.formats.decoder import Decoded, Decoder, Reject
from consumers.formats.json import JsonDecoder
from consumers.formats.raw import RawDecoder

__all__ = ["Decoded", "Decoder", "JsonDecoder", "RawDecoder", "Reject", "decoder_for"]


def decoder_for(config: ConsumerConfig) -> Decoder:
    """The decoder of a consumer's format and schema."""
    return JsonDecoder(config.columns) if config.format == "json" else RawDecoder(config.columns)
