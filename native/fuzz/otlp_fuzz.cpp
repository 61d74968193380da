// Feeds arbitrary bytes to the OTLP scanner and editor. The first byte chooses the signal, the second what is
// edited, the rest is the request. Beyond what the sanitizers see: what was accepted stays acceptable when it
// is cut or appended to, appending is idempotent, and rows of another payload are refused or harmless.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "llmprism/otlp.h"

namespace {

using namespace llmprism::otlp;
using Bytes = std::vector<uint8_t>;

constexpr uint8_t kKeys[] = {1, 0, 0, 0, 'k', 3, 0, 0, 0, 'a', 'b', 'c'};
// Attribute "new" with the value 7, as a field of a span, a log record, a metric.
constexpr uint8_t kField[3][11] = {
    {0x4A, 9, 0x0A, 3, 'n', 'e', 'w', 0x12, 2, 0x18, 7},
    {0x32, 9, 0x0A, 3, 'n', 'e', 'w', 0x12, 2, 0x18, 7},
    {0x62, 9, 0x0A, 3, 'n', 'e', 'w', 0x12, 2, 0x18, 7},
};
constexpr uint64_t kRowSizes[3] = {sizeof(SpanRow), sizeof(LogRow), sizeof(MetricRow)};

void require(bool holds) {
  if (!holds) std::abort();
}

struct Scanned {
  explicit Scanned(const Bytes& bytes, uint64_t signal_number) : payload(bytes), signal(signal_number) {
    llmprism_otlp_scan(payload.data(), payload.size(), signal, 0, kKeys, 2, kKeys, 1, &result);
  }
  ~Scanned() { llmprism_otlp_release(&result); }
  Scanned(const Scanned&) = delete;
  Scanned& operator=(const Scanned&) = delete;

  llmprism_otlp_tables tables() const {
    return {payload.data(),        payload.size(),     result.resources,    result.scopes, result.records,
            result.resource_count, result.scope_count, result.record_count, signal};
  }

  const Bytes& payload;
  uint64_t signal;
  llmprism_otlp_result result;
};

// The edited request, or the old one where nothing changes.
Bytes emit(const Bytes& payload, llmprism_otlp_edit& edit) {
  if (edit.editor == nullptr) return payload;
  Bytes out(edit.size);
  uint8_t nothing;
  llmprism_otlp_emit(&edit, out.empty() ? &nothing : out.data());
  return out;
}

// Step over what is checked: the same places, and no way out of the payload even if nothing was checked.
void check_second_scan(const Bytes& payload, uint64_t signal, const llmprism_otlp_result* first) {
  llmprism_otlp_result again;
  llmprism_otlp_scan(payload.data(), payload.size(), signal, 1, kKeys, 0, kKeys, 1, &again);
  if (first != nullptr) require(again.error_code == kOk && again.record_count == first->record_count);
  llmprism_otlp_release(&again);
}

// Counting without rows refuses the same and counts the same.
void check_counting(const Scanned& scanned) {
  llmprism_otlp_result counts;
  llmprism_otlp_check(scanned.payload.data(), scanned.payload.size(), scanned.signal, &counts);
  require(counts.error_code == scanned.result.error_code && counts.error_offset == scanned.result.error_offset);
  require(counts.record_count == scanned.result.record_count && counts.bad_id_count == scanned.result.bad_id_count);
  require(counts.invalid_utf8_count == scanned.result.invalid_utf8_count);
}

void check_selection(const Scanned& scanned, uint8_t choice) {
  const uint64_t count = scanned.result.record_count;
  Bytes keep(count + 1);
  uint64_t kept = 0;
  for (uint64_t i = 0; i < count; ++i) kept += keep[i] = (choice >> (i % 8)) & 1;
  const llmprism_otlp_tables tables = scanned.tables();
  for (uint64_t drop_empty : {0, 1}) {
    llmprism_otlp_edit edit;
    llmprism_otlp_select(&tables, keep.data(), drop_empty, &edit);
    require(edit.error_code == kOk);
    const Bytes selected = emit(scanned.payload, edit);
    require(selected.size() <= scanned.payload.size());
    const Scanned again(selected, scanned.signal);
    require(again.result.error_code == kOk && again.result.record_count == kept);
  }
}

Bytes append_everywhere(const Scanned& scanned, bool& is_changed) {
  const uint64_t count = scanned.result.record_count;
  std::vector<uint32_t> indexes(count), sizes(count, sizeof kField[0]);
  Bytes blob;
  for (uint32_t i = 0; i < count; ++i) {
    indexes[i] = i;
    blob.insert(blob.end(), kField[scanned.signal], kField[scanned.signal] + sizeof kField[0]);
  }
  const llmprism_otlp_tables tables = scanned.tables();
  const llmprism_otlp_edits edits{blob.data(), blob.size(), reinterpret_cast<const uint8_t*>(indexes.data()),
                                  reinterpret_cast<const uint8_t*>(sizes.data()), count};
  llmprism_otlp_edit edit;
  llmprism_otlp_append(&tables, &edits, &edit);
  require(edit.error_code == kOk);
  is_changed = edit.editor != nullptr;
  return emit(scanned.payload, edit);
}

void check_appending(const Scanned& scanned) {
  bool is_changed;
  const Bytes appended = append_everywhere(scanned, is_changed);
  const Scanned again(appended, scanned.signal);
  require(again.result.error_code == kOk && again.result.record_count == scanned.result.record_count);
  append_everywhere(again, is_changed);
  require(!is_changed);
}

// Stamping is a scan, a match and an append in one; done twice, the second changes nothing.
void check_stamping(const Bytes& payload) {
  constexpr uint8_t kNames[] = {1, 0, 0, 0, 0};  // the prefix of all names
  const llmprism_otlp_rule rule{kNames, 1, kKeys, 1, kAbsent, 0, nullptr, 0, kField[kTraces], sizeof kField[kTraces]};
  const auto stamp = [&rule](const Bytes& bytes) {
    llmprism_otlp_edit edit;
    llmprism_otlp_stamp(bytes.data(), bytes.size(), &rule, &edit);
    require(edit.error_code == kOk);
    if (edit.editor == nullptr) return bytes;
    Bytes out(edit.size);
    llmprism_otlp_emit_stamps(&edit, out.data());
    return out;
  };
  const Bytes stamped = stamp(payload);
  require(Scanned(stamped, kTraces).result.error_code == kOk);
  require(stamp(stamped) == stamped);
}

// Rows that were tampered with must be refused or do no harm; the sanitizers watch.
void check_forged_rows(const Scanned& scanned, uint8_t choice) {
  llmprism_otlp_tables tables = scanned.tables();
  const auto copy = [](const void* rows, uint64_t size) {
    Bytes bytes(size);
    if (size != 0) std::memcpy(bytes.data(), rows, size);
    return bytes;
  };
  Bytes resources = copy(tables.resources, tables.resource_count * sizeof(ResourceRow));
  Bytes scopes = copy(tables.scopes, tables.scope_count * sizeof(ScopeRow));
  Bytes records = copy(tables.records, tables.record_count * kRowSizes[scanned.signal]);
  for (Bytes* rows : {&resources, &scopes, &records}) {
    if (!rows->empty()) (*rows)[(choice * size_t{131}) % rows->size()] ^= static_cast<uint8_t>(choice | 1);
  }
  tables.resources = resources.data();
  tables.scopes = scopes.data();
  tables.records = records.data();
  const Bytes keep(tables.record_count + 1, choice & 1);
  llmprism_otlp_edit edit;
  llmprism_otlp_select(&tables, keep.data(), 1, &edit);
  emit(scanned.payload, edit);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  // A copy of its own size: a read one byte behind it is seen.
  const Bytes payload(data + 2, data + size);
  const Scanned scanned(payload, data[0] % 3);
  check_counting(scanned);
  if (scanned.result.error_code != kOk) {
    require(scanned.result.error_offset <= payload.size());
    check_second_scan(payload, scanned.signal, nullptr);
    return 0;
  }
  check_second_scan(payload, scanned.signal, &scanned.result);
  check_selection(scanned, data[1]);
  check_appending(scanned);
  if (scanned.signal == kTraces) check_stamping(payload);
  check_forged_rows(scanned, data[1]);
  return 0;
}
