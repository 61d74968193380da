// Drops records from a scanned request or appends fields to them, and the C ABI of that. Only the lengths
// that enclose a change are written anew; what has no change around it is copied in long runs.
#include <new>

#include "otlp_plan.h"

namespace llmprism::otlp {
namespace {

class Emitter {
 public:
  Emitter(const Tables& tables, const Selection& selection, const Planner& planner, Additions& additions, uint8_t* out)
      : tables_(tables), selection_(selection), planner_(planner), additions_(additions), out_(out) {}

  void emit_resources() {
    additions_.rewind();
    for (uint64_t i = 0; i < tables_.resource_count(); ++i) {
      const ResourceRow row = tables_.resource(i);
      const Place place = place_of(row);
      const Plan& plan = planner_.resources()[i];
      if (selection_.drop_empty) cursor_ = place.start;
      if (plan.change == kDropped) {
        skip(place);
      } else if (plan.change == kResized) {
        copy_until(place.start);
        emit_header(place, plan.length);
        for (uint64_t s = 0; s < row.scope_count; ++s) emit_scope(row.first_scope + s);
      }
      if (selection_.drop_empty && plan.change != kDropped) copy_until(place.end());
    }
    if (!selection_.drop_empty) copy_until(tables_.payload_size());
  }

 private:
  void emit_scope(uint64_t index) {
    const ScopeRow row = tables_.scope(index);
    const Place place = place_of(row);
    const Plan& plan = planner_.scopes()[index];
    if (plan.change == kDropped) return skip(place);
    if (plan.change == kSame) return;
    copy_until(place.start);
    emit_header(place, plan.length);
    for (uint64_t i = row.first_record; i < uint64_t{row.first_record} + row.record_count; ++i) emit_record(i);
  }

  void emit_record(uint64_t index) {
    const Place place = tables_.record(index);
    if (!selection_.is_kept(index)) return skip(place);
    const Addition* addition = additions_.find_addition(index);
    if (addition == nullptr) return;
    copy_until(place.start);
    emit_header(place, place.length + addition->size);
    copy_until(place.end());
    for (uint64_t i = 0; i < addition->slice_count; ++i) {
      const Slice& slice = additions_.slices_of(*addition)[i];
      std::memcpy(out_, slice.at, slice.size);
      out_ += slice.size;
    }
  }

  void emit_header(const Place& place, uint64_t length) {
    copy_until(tables_.find_length(place));
    for (; length > 0x7F; length >>= 7) *out_++ = static_cast<uint8_t>(length | 0x80);
    *out_++ = static_cast<uint8_t>(length);
    cursor_ = place.offset;
  }

  void copy_until(uint64_t to) {
    std::memcpy(out_, tables_.payload() + cursor_, to - cursor_);
    out_ += to - cursor_;
    cursor_ = to;
  }

  void skip(const Place& place) {
    copy_until(place.start);
    cursor_ = place.end();
  }

  const Tables& tables_;
  const Selection& selection_;
  const Planner& planner_;
  Additions& additions_;
  uint8_t* out_;
  uint64_t cursor_ = 0;  // what of the payload is behind us
};

class Editor {
 public:
  explicit Editor(const llmprism_otlp_tables& tables)
      : tables_(tables), failure_{tables.payload}, additions_(tables_), planner_(tables_, selection_, additions_) {}

  void drop_records(const Selection& selection) { selection_ = selection; }
  bool add_fields(const llmprism_otlp_edits& edits) { return additions_.add_fields(failure_, edits); }

  bool is_needed() const {
    if (selection_.keep == nullptr) return !additions_.is_empty();
    return selection_.drop_empty || std::memchr(selection_.keep, 0, tables_.record_count()) != nullptr;
  }

  bool plan(uint64_t& total) {
    failure_.error_code = planner_.plan_request(total);
    return failure_.error_code == kOk;
  }

  void emit(uint8_t* out) { Emitter(tables_, selection_, planner_, additions_, out).emit_resources(); }

  const Request& failure() const { return failure_; }

 private:
  const Tables tables_;
  Selection selection_{nullptr, false};
  Request failure_;
  Additions additions_;
  Planner planner_;
};

Editor* open_editor(const llmprism_otlp_tables& tables, llmprism_otlp_edit& edit) {
  edit = {};
  void* room = std::malloc(sizeof(Editor));
  if (room == nullptr) {
    edit.error_code = kNoMemory;
    return nullptr;
  }
  return new (room) Editor(tables);
}

void close_editor(Editor* editor) {
  editor->~Editor();
  std::free(editor);
}

// Keeps the editor only if there is something to emit.
void finish(Editor* editor, bool is_fine, llmprism_otlp_edit& edit) {
  const bool is_needed = is_fine && editor->is_needed();
  if (is_needed && editor->plan(edit.size)) {
    edit.editor = editor;
    return;
  }
  edit.error_code = editor->failure().error_code;
  edit.error_offset = editor->failure().error_offset;
  close_editor(editor);
}

}  // namespace
}  // namespace llmprism::otlp

void llmprism_otlp_select(const llmprism_otlp_tables* tables, const uint8_t* keep, uint64_t drop_empty,
                          llmprism_otlp_edit* edit) {
  llmprism::otlp::Editor* editor = llmprism::otlp::open_editor(*tables, *edit);
  if (editor == nullptr) return;
  editor->drop_records({keep, drop_empty != 0});
  finish(editor, true, *edit);
}

void llmprism_otlp_append(const llmprism_otlp_tables* tables, const llmprism_otlp_edits* edits,
                          llmprism_otlp_edit* edit) {
  llmprism::otlp::Editor* editor = llmprism::otlp::open_editor(*tables, *edit);
  if (editor == nullptr) return;
  finish(editor, editor->add_fields(*edits), *edit);
}

void llmprism_otlp_emit(llmprism_otlp_edit* edit, uint8_t* out) {
  auto* editor = static_cast<llmprism::otlp::Editor*>(edit->editor);
  if (editor == nullptr) return;
  if (out != nullptr) editor->emit(out);
  llmprism::otlp::close_editor(editor);
  *edit = {};
}
