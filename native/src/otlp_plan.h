// What becomes of every resource and scope when records go or grow, worked out before a byte is written.
#pragma once
#include "otlp_additions.h"

namespace llmprism::otlp {

enum Change : uint8_t { kSame = 0, kResized, kDropped };

// What becomes of a resource, a scope or a record.
struct Plan {
  uint64_t length;
  Change change;
};

// Which records stay: all without keep. drop_empty also drops what held none from the start.
struct Selection {
  const uint8_t* keep;
  bool drop_empty;

  bool is_kept(uint64_t record) const { return keep == nullptr || keep[record] != 0; }
};

class Planner {
 public:
  Planner(const Tables& tables, const Selection& selection, Additions& additions)
      : tables_(tables), selection_(selection), additions_(additions) {}

  // total is the size of the edited request.
  Code plan_request(uint64_t& total) {
    if (plans_.open(tables_.resource_count() + tables_.scope_count() + 1) == nullptr) return kNoMemory;
    additions_.rewind();
    if (!plan_resources(total)) return kForeignScan;
    return total <= kMaxPayload ? kOk : kGrownTooLarge;
  }

  Plan* resources() const { return plans_.rows(); }
  Plan* scopes() const { return plans_.rows() + tables_.resource_count(); }

 private:
  bool plan_resources(uint64_t& total) {
    total = selection_.drop_empty ? 0 : tables_.payload_size();
    uint64_t from = 0, next_scope = 0, next_record = 0;
    for (uint64_t i = 0; i < tables_.resource_count(); ++i) {
      const ResourceRow row = tables_.resource(i);
      const Place place = place_of(row);
      if (!tables_.is_inside(place, from, tables_.payload_size()) || row.first_scope != next_scope ||
          row.scope_count > tables_.scope_count() - next_scope) {
        return false;
      }
      uint64_t kept = 0;
      const uint64_t first_record = next_record;
      Plan plan{row.length, kSame};
      uint64_t inner = row.offset;
      for (uint64_t s = 0; s < row.scope_count; ++s) {
        const uint64_t scope_index = next_scope + s;
        if (!plan_scope(scope_index, inner, place.end(), next_record, kept)) return false;
        const Place scope_place = place_of(tables_.scope(scope_index));
        resize_parent(plan, scope_place, scopes()[scope_index]);
        inner = scope_place.end();
      }
      next_scope += row.scope_count;
      finish_plan(plan, kept, next_record - first_record);
      resources()[i] = plan;
      if (selection_.drop_empty) {
        total += plan.change == kDropped ? 0
                 : plan.change == kSame  ? place.size()
                                         : tables_.size_with(place, plan.length);
      } else {
        Plan whole{total, kSame};
        resize_parent(whole, place, plan);
        total = whole.length;
      }
      from = place.end();
    }
    return next_scope == tables_.scope_count() && next_record == tables_.record_count();
  }

  bool plan_scope(uint64_t index, uint64_t from, uint64_t to, uint64_t& next_record, uint64_t& kept_above) {
    const ScopeRow row = tables_.scope(index);
    const Place place = place_of(row);
    if (!tables_.is_inside(place, from, to) || row.first_record != next_record ||
        row.record_count > tables_.record_count() - next_record) {
      return false;
    }
    Plan plan{row.length, kSame};
    uint64_t kept = 0;
    uint64_t inner = row.offset;
    for (uint64_t i = next_record; i < next_record + row.record_count; ++i) {
      const Place at = tables_.record(i);
      if (!tables_.is_inside(at, inner, place.end())) return false;
      const Addition* addition = additions_.find_addition(i);
      Plan of_record{at.length, selection_.is_kept(i) ? kSame : kDropped};
      if (addition != nullptr) of_record = {at.length + addition->size, kResized};
      kept += of_record.change != kDropped;
      resize_parent(plan, at, of_record);
      inner = at.end();
    }
    next_record += row.record_count;
    kept_above += kept;
    finish_plan(plan, kept, row.record_count);
    scopes()[index] = plan;
    return true;
  }

  void resize_parent(Plan& parent, const Place& child, const Plan& plan) const {
    if (plan.change == kSame) return;
    parent.change = kResized;
    parent.length -= child.size();
    if (plan.change == kResized) parent.length += tables_.size_with(child, plan.length);
  }

  void finish_plan(Plan& plan, uint64_t kept, uint64_t records) const {
    if (kept == 0 && (records != 0 || selection_.drop_empty)) plan.change = kDropped;
  }

  const Tables& tables_;
  const Selection& selection_;
  Additions& additions_;
  Rows<Plan> plans_;
};

}  // namespace llmprism::otlp
