// Appends the same fields to every span that a rule matches, in one call: what a scan, a match and an append do one
// after the other, without rows for the caller in between, whose making and reading costs as much as the scan.
#include <new>

#include "otlp_rows.h"
#include "otlp_wire.h"

namespace llmprism::otlp {
namespace {

class Stamping {
 public:
  Stamping(const uint8_t* payload, const llmprism_otlp_rule& rule) : payload_(payload), rule_(rule) {}
  ~Stamping() { llmprism_otlp_release(&found_); }
  Stamping(const Stamping&) = delete;
  Stamping& operator=(const Stamping&) = delete;

  // What is going to be is told in edit; its editor is NULL when nothing changes.
  llmprism_otlp_edit plan(uint64_t size) {
    llmprism_otlp_scan(payload_, size, kTraces, 1, rule_.key, rule_.key_count, nullptr, 0, &found_);
    if (found_.error_code != kOk) return {nullptr, 0, found_.error_offset, found_.error_code};
    if (!list_edits()) return {nullptr, 0, 0, kNoMemory};
    if (indexes_.count() == 0) return {};
    const llmprism_otlp_tables tables{payload_,
                                      size,
                                      found_.resources,
                                      found_.scopes,
                                      found_.records,
                                      found_.resource_count,
                                      found_.scope_count,
                                      found_.record_count,
                                      kTraces};
    const llmprism_otlp_edits edits{blob_.rows(), blob_.count(), reinterpret_cast<const uint8_t*>(indexes_.rows()),
                                    reinterpret_cast<const uint8_t*>(sizes_.rows()), indexes_.count()};
    llmprism_otlp_append(&tables, &edits, &edit_);
    return edit_;
  }

  void emit(uint8_t* out) { llmprism_otlp_emit(&edit_, out); }

 private:
  bool list_edits() {
    for (uint64_t i = 0; i < found_.record_count; ++i) {
      const SpanRow span = load<SpanRow>(static_cast<const uint8_t*>(found_.records) + i * sizeof(SpanRow));
      if (!is_name_asked(span) || !is_value_asked(i)) continue;
      uint32_t* index = indexes_.open(1);
      uint32_t* size = sizes_.open(1);
      uint8_t* fields = blob_.open(rule_.fields_size);
      if (index == nullptr || size == nullptr || fields == nullptr) return false;
      *index = static_cast<uint32_t>(i);
      *size = static_cast<uint32_t>(rule_.fields_size);
      std::memcpy(fields, rule_.fields, rule_.fields_size);
    }
    return true;
  }

  bool is_name_asked(const SpanRow& span) const {
    const uint8_t* at = rule_.names;
    for (uint64_t i = 0; i < rule_.name_count; ++i) {
      const bool is_prefix = at[0] != 0;
      const uint32_t size = load<uint32_t>(at + 1);
      const bool has_size = is_prefix ? span.name_length >= size : span.name_length == size;
      if (has_size && std::memcmp(payload_ + span.name_offset, at + 5, size) == 0) return true;
      at += 5 + size;
    }
    return false;
  }

  bool is_value_asked(uint64_t index) const {
    if (rule_.key_count == 0) return true;
    const ValueCell cell = load<ValueCell>(static_cast<const uint8_t*>(found_.values) + index * sizeof(ValueCell));
    if (rule_.value_type == kAbsent) return cell.type != kAbsent;
    if (cell.type != rule_.value_type) return false;
    if (cell.type == kString || cell.type == kBytes) {
      return cell.length == rule_.text_size && std::memcmp(payload_ + cell.offset, rule_.text, cell.length) == 0;
    }
    if (cell.type == kDouble) return std::bit_cast<double>(cell.bits) == std::bit_cast<double>(rule_.value_bits);
    return cell.bits == rule_.value_bits;
  }

  const uint8_t* payload_;
  const llmprism_otlp_rule rule_;
  llmprism_otlp_result found_{};
  llmprism_otlp_edit edit_{};
  Rows<uint32_t> indexes_;
  Rows<uint32_t> sizes_;
  Rows<uint8_t> blob_;
};

void close_stamping(Stamping* stamping) {
  stamping->~Stamping();
  std::free(stamping);
}

}  // namespace
}  // namespace llmprism::otlp

void llmprism_otlp_stamp(const uint8_t* payload, uint64_t size, const llmprism_otlp_rule* rule,
                         llmprism_otlp_edit* edit) {
  using namespace llmprism::otlp;
  void* room = std::malloc(sizeof(Stamping));
  if (room == nullptr) {
    *edit = {nullptr, 0, 0, kNoMemory};
    return;
  }
  auto* stamping = new (room) Stamping(payload, *rule);
  *edit = stamping->plan(size);
  if (edit->editor == nullptr) return close_stamping(stamping);
  edit->editor = stamping;
}

void llmprism_otlp_emit_stamps(llmprism_otlp_edit* edit, uint8_t* out) {
  auto* stamping = static_cast<llmprism::otlp::Stamping*>(edit->editor);
  if (stamping == nullptr) return;
  stamping->emit(out);
  llmprism::otlp::close_stamping(stamping);
  *edit = {};
}
