"""What a consumer's definition makes of records: columns, the choice of those that belong to its table, its transform."""

import pyarrow as pa
import pyarrow.compute as pc

from consumers.config import ConsumerConfig, Where
from consumers.formats import Decoded, Decoder, RecordDecoder, Reject
from consumers.processing.transform import Transformed


def decoder_for(config: ConsumerConfig) -> Decoder:
    """The decoder of a consumer. Raises ConfigError when its transform cannot be imported."""
    decoder: Decoder = RecordDecoder(config.format, config.read_columns)
    if config.where is not None:
        decoder = _Chosen(decoder, config, config.where)
    if config.transform is not None:
        decoder = Transformed(decoder, config.transform.function, config.columns, config.source)
    return decoder


class _Chosen:
    """Passes over the records that do not belong to the table, also those of which only another column is invalid."""

    def __init__(self, decoder: Decoder, config: ConsumerConfig, where: Where) -> None:
        self.schema = decoder.schema
        self._decoder = decoder
        self._column = where.column
        kind = config.read_columns[where.column]
        self._alone = RecordDecoder(config.format, {where.column: kind.model_copy(update={"nullable": True})})
        self._not = where.values is None
        self._values = pa.array(where.not_in if where.values is None else where.values, kind.arrow)

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """The rows and rejects that belong to the table."""
        decoded = self._decoder.decode(records)
        kept = self._belongs(decoded.rows)
        rejects = self._rejects(records, decoded.rejects)
        return Decoded(decoded.rows.filter(kept), decoded.indices.filter(kept), rejects)

    def _belongs(self, rows: pa.Table) -> pa.Array:
        there = pc.is_in(rows[self._column], value_set=self._values).combine_chunks()
        return pc.invert(there) if self._not else there

    def _rejects(self, records: pa.RecordBatch, rejects: tuple[Reject, ...]) -> tuple[Reject, ...]:
        """Less those that say themselves that they belong elsewhere."""
        if not rejects:
            return rejects
        told = self._alone.decode(records.take(pa.array([reject.index for reject in rejects], pa.int32())))
        elsewhere = set(told.indices.filter(pc.invert(self._belongs(told.rows))).to_pylist())
        return tuple(reject for i, reject in enumerate(rejects) if i not in elsewhere)
