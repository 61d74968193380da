# Step records in files -> columns of work, cycle and start; what a row must not be is said with its place.
from otel_llmprism.receivers.step_records.reader import read_step_records as read_step_records
from otel_llmprism.receivers.step_records.record_batch import RecordBatch as RecordBatch
from otel_llmprism.receivers.step_records.record_batch import StepRecordError as StepRecordError
from otel_llmprism.receivers.step_records.rejected import RejectedRows as RejectedRows

__all__ = ["RecordBatch", "RejectedRows", "StepRecordError", "read_step_records"]
