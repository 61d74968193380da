#include "step_lane.h"

#include <structmember.h>

#include <cmath>
#include <cstring>

namespace llmprism {
namespace {

constexpr uint32_t kMaxSteps = 64;
constexpr uint32_t kTimeEvery = 5;  // as instrumentation/guard.py
constexpr uint32_t kMaxTimed = 2 * kMaxSteps / kTimeEvery + 2;
constexpr uint32_t kMostMisses = 8;
constexpr uint16_t kStepScheduled = 1, kStepOutput = 3;
constexpr uint8_t kDecode = 2, kSentinel = 1;

struct StepLane {
    PyObject_HEAD
    SlotRing* ring;
    PyObject* scheduler;
    PyObject* tokenless;  // requests whose first token nobody has seen yet: their step is Python's
    uint64_t epoch;       // that of the last lending; another one now means that something changed
    int64_t next_step;
    int64_t end_ns;  // steps that start from here on are Python's
    int64_t last_output_ns;
    double probability;
    Py_ssize_t running;
    uint32_t lent, used, calls, timed, phase, misses;
    uint8_t kept[kMaxSteps];
    uint64_t timed_ns[kMaxTimed];
};

// The one that booked last: engines are one to a process, all but always.
StepLane* active = nullptr;
uint64_t epoch_now = 1;

PyObject *n_tokens, *n_new, *n_cached, *n_total, *n_resumed, *n_computed, *n_counts, *n_kv, *n_usage, *n_ticket,
    *n_host_ns;

struct alignas(8) Scheduled {
    uint16_t kind, entries;
    uint32_t reserved;
    int64_t step, start_ns, end_ns;
    double probability;
    uint64_t kv_tokens;
    uint32_t requests, prefill_tokens, decode_tokens, waiting, running, preemptions;
    float kv_usage;
    uint8_t step_kind, kept, graph_mode, mode;
    uint16_t lane, members;
    uint8_t fill[44];
};
static_assert(sizeof(Scheduled) == kSlotBytes);

struct alignas(8) Output {
    uint16_t kind, entries;
    uint32_t reserved;
    int64_t step, ready_ns;
    uint64_t execute_ns, sample_ns, output_ns, gap_ns;
    uint8_t fill[72];
};
static_assert(sizeof(Output) == kSlotBytes);

// Owns a reference; null when something failed, which the caller clears.
class Ref {
   public:
    explicit Ref(PyObject* object) : object_(object) {}
    Ref(const Ref&) = delete;
    Ref& operator=(const Ref&) = delete;
    ~Ref() { Py_XDECREF(object_); }
    PyObject* get() const { return object_; }
    explicit operator bool() const { return object_ != nullptr; }

   private:
    PyObject* object_;
};

PyObject* leave_to_python() {
    PyErr_Clear();
    Py_RETURN_FALSE;
}

bool read_u64(PyObject* number, uint64_t* value) {
    *value = PyLong_AsUnsignedLongLong(number);
    return *value != kUnknown || PyErr_Occurred() == nullptr;
}

bool read_u32(PyObject* number, uint32_t* value) {
    uint64_t wide = 0;
    if (!PyLong_Check(number) || !read_u64(number, &wide) || wide > UINT32_MAX) return false;
    *value = static_cast<uint32_t>(wide);
    return true;
}

bool read_i64(PyObject* number, int64_t* value) {
    *value = PyLong_AsLongLong(number);
    return *value >= 0;
}

bool sum_list(PyObject* list, uint64_t* sum) {
    if (!PyList_Check(list)) return false;
    const Py_ssize_t count = PyList_Size(list);
    for (Py_ssize_t at = 0; at < count; ++at) {
        const int64_t value = PyLong_AsLongLong(PyList_GetItem(list, at));
        if (value < 0) return false;
        *sum += static_cast<uint64_t>(value);
    }
    return true;
}

bool is_empty_list(PyObject* list) { return PyList_Check(list) && PyList_Size(list) == 0; }

// One token for each of those that ran, and nobody new: all that it asks runs no Python.
bool is_plain_decode(const StepLane* lane, PyObject* output, Scheduled* record) {
    const Ref tokens(PyObject_GetAttr(output, n_tokens));
    if (!tokens || !PyDict_Check(tokens.get()) || PyDict_Size(tokens.get()) != lane->running) return false;
    const Ref total(PyObject_GetAttr(output, n_total));
    if (!total || !read_u32(total.get(), &record->decode_tokens)) return false;
    if (static_cast<Py_ssize_t>(record->decode_tokens) != lane->running) return false;
    const Ref fresh(PyObject_GetAttr(output, n_new));
    if (!fresh || !is_empty_list(fresh.get())) return false;
    const Ref cached(PyObject_GetAttr(output, n_cached));
    if (!cached) return false;
    const Ref resumed(PyObject_GetAttr(cached.get(), n_resumed));
    if (!resumed || PyObject_Size(resumed.get()) != 0) return false;
    const Ref computed(PyObject_GetAttr(cached.get(), n_computed));
    if (!computed || !sum_list(computed.get(), &record->kv_tokens)) return false;
    record->requests = record->decode_tokens;
    record->kv_tokens += record->decode_tokens;
    return true;
}

// What vLLM itself answers, which may run any Python.
bool ask_scheduler(PyObject* scheduler, Scheduled* record) {
    const Ref counts(PyObject_CallMethodObjArgs(scheduler, n_counts, nullptr));
    if (!counts || !PyTuple_Check(counts.get()) || PyTuple_Size(counts.get()) != 2) return false;
    if (!read_u32(PyTuple_GetItem(counts.get(), 0), &record->running)) return false;
    if (!read_u32(PyTuple_GetItem(counts.get(), 1), &record->waiting)) return false;
    const Ref manager(PyObject_GetAttr(scheduler, n_kv));
    if (!manager) return false;
    const Ref usage(PyObject_GetAttr(manager.get(), n_usage));
    if (!usage) return false;
    const double wide = PyFloat_AsDouble(usage.get());
    if (PyErr_Occurred() != nullptr) return false;
    record->kv_usage = static_cast<float>(wide);
    return std::isfinite(wide) && std::isfinite(record->kv_usage);
}

void attach_ticket(const StepLane* lane, PyObject* output, int64_t step, uint8_t kept) {
    const Ref ticket(
        Py_BuildValue("(Lidi)", static_cast<long long>(step), int{kept}, lane->probability, int{kSentinel}));
    if (!ticket || PyObject_SetAttr(output, n_ticket, ticket.get()) != 0) PyErr_Clear();
}

// A worker in this process has left them on the output; to find nothing there costs as much as all the rest.
bool read_host_times(StepLane* lane, PyObject* output, Output* record) {
    record->execute_ns = record->sample_ns = record->gap_ns = kUnknown;
    if (lane->misses >= kMostMisses) return true;
    const Ref host_ns(PyObject_GetAttr(output, n_host_ns));
    if (!host_ns) {
        PyErr_Clear();
        lane->misses += 1;
        return true;
    }
    lane->misses = 0;
    return PyTuple_Check(host_ns.get()) && PyTuple_Size(host_ns.get()) == 2 &&
           read_u64(PyTuple_GetItem(host_ns.get(), 0), &record->execute_ns) &&
           read_u64(PyTuple_GetItem(host_ns.get(), 1), &record->sample_ns);
}

void note_call(StepLane* lane, int64_t began_ns) {
    lane->calls += 1;
    lane->phase += 1;
    if (lane->phase % kTimeEvery != 0 || lane->timed >= kMaxTimed) return;
    lane->timed_ns[lane->timed++] = static_cast<uint64_t>(read_clock() - began_ns);
}

bool has_lease(const StepLane* lane) { return lane->epoch == epoch_now && lane->used < lane->lent; }

}  // namespace

PyObject* note_scheduled(PyObject*, PyObject* const* args, Py_ssize_t count) {
    StepLane* lane = active;
    if (lane == nullptr || count != 3 || lane->scheduler != args[0] || !has_lease(lane)) Py_RETURN_FALSE;
    const Ref kept_alive(Py_NewRef(reinterpret_cast<PyObject*>(lane)));
    Scheduled record{};
    record.end_ns = read_clock();
    if (!read_i64(args[2], &record.start_ns) || record.start_ns >= lane->end_ns) return leave_to_python();
    if (!is_plain_decode(lane, args[1], &record)) return leave_to_python();
    if (!ask_scheduler(args[0], &record)) return leave_to_python();
    // Python ran in between: only now is it certain whose step this is. From here to the put none runs.
    if (!has_lease(lane) || !has_room(lane->ring, 1)) return leave_to_python();
    record.kind = kStepScheduled;
    record.step = lane->next_step;
    record.probability = lane->probability;
    record.step_kind = kDecode;
    record.kept = lane->kept[lane->used];
    record.mode = kSentinel;
    put_slots(lane->ring, reinterpret_cast<const uint8_t*>(&record), 1);
    lane->next_step += 1;
    lane->used += 1;
    attach_ticket(lane, args[1], record.step, record.kept);
    note_call(lane, record.end_ns);
    look_after(lane->ring, true);
    Py_RETURN_TRUE;
}

PyObject* note_output(PyObject*, PyObject* const* args, Py_ssize_t count) {
    StepLane* lane = active;
    if (lane == nullptr || count != 3 || lane->scheduler != args[0] || lane->epoch != epoch_now) Py_RETURN_FALSE;
    if (PyDict_Size(lane->tokenless) != 0 || lane->calls >= 2 * kMaxSteps) Py_RETURN_FALSE;
    const Ref kept_alive(Py_NewRef(reinterpret_cast<PyObject*>(lane)));
    const int64_t began_ns = read_clock();
    Output record{};
    if (!read_i64(args[2], &record.ready_ns)) return leave_to_python();
    const Ref ticket(PyObject_GetAttr(args[1], n_ticket));
    if (!ticket || !PyTuple_Check(ticket.get()) || PyTuple_Size(ticket.get()) != 4) return leave_to_python();
    if (!read_i64(PyTuple_GetItem(ticket.get(), 0), &record.step)) return leave_to_python();
    if (!read_host_times(lane, args[1], &record)) return leave_to_python();
    if (lane->epoch != epoch_now || !has_room(lane->ring, 1)) return leave_to_python();
    record.kind = kStepOutput;
    record.output_ns = static_cast<uint64_t>(read_clock() - record.ready_ns);
    lane->last_output_ns = record.ready_ns;
    put_slots(lane->ring, reinterpret_cast<const uint8_t*>(&record), 1);
    note_call(lane, began_ns);
    look_after(lane->ring, true);
    Py_RETURN_TRUE;
}

PyObject* revoke_lanes(PyObject*, PyObject*) {
    epoch_now += 1;
    Py_RETURN_NONE;
}

namespace {

PyObject* create(PyTypeObject* type, PyObject* args, PyObject*) {
    PyObject *ring = nullptr, *scheduler = nullptr, *tokenless = nullptr;
    if (!PyArg_ParseTuple(args, "O!OO!", slot_ring_type, &ring, &scheduler, &PyDict_Type, &tokenless)) return nullptr;
    auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
    PyObject* made = allocate(type, 0);
    if (made == nullptr) return nullptr;
    auto* lane = reinterpret_cast<StepLane*>(made);
    lane->ring = reinterpret_cast<SlotRing*>(Py_NewRef(ring));
    lane->scheduler = Py_NewRef(scheduler);
    lane->tokenless = Py_NewRef(tokenless);
    return made;
}

int traverse(PyObject* self, visitproc visit, void* arg) {
    auto* lane = reinterpret_cast<StepLane*>(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(reinterpret_cast<PyObject*>(lane->ring));
    Py_VISIT(lane->scheduler);
    Py_VISIT(lane->tokenless);
    return 0;
}

int clear(PyObject* self) {
    auto* lane = reinterpret_cast<StepLane*>(self);
    if (active == lane) active = nullptr;
    lane->epoch = 0;
    Py_CLEAR(lane->scheduler);
    Py_CLEAR(lane->tokenless);
    return 0;
}

void destroy(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear(self);
    Py_CLEAR(reinterpret_cast<StepLane*>(self)->ring);
    reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

PyObject* lend(PyObject* self, PyObject* args) {
    auto* lane = reinterpret_cast<StepLane*>(self);
    long long step = 0, end_ns = 0;
    const char* kept = nullptr;
    Py_ssize_t steps = 0, running = 0;
    double probability = 0;
    if (!PyArg_ParseTuple(args, "Ly#dLn", &step, &kept, &steps, &probability, &end_ns, &running)) return nullptr;
    if (lane->calls != 0 || lane->used != 0 || step < 0 || steps < 0 || steps > static_cast<Py_ssize_t>(kMaxSteps)) {
        PyErr_SetString(PyExc_ValueError, "take back what was lent, and lend no more than fits");
        return nullptr;
    }
    std::memcpy(lane->kept, kept, static_cast<size_t>(steps));
    lane->lent = static_cast<uint32_t>(steps);
    lane->next_step = step;
    lane->probability = probability;
    lane->end_ns = end_ns;
    lane->running = running;
    lane->epoch = epoch_now;
    active = lane;
    Py_RETURN_NONE;
}

PyObject* take_back(PyObject* self, PyObject*) {
    auto* lane = reinterpret_cast<StepLane*>(self);
    const Ref timed(PyList_New(lane->timed));
    if (!timed) return nullptr;
    for (uint32_t at = 0; at < lane->timed; ++at) {
        PyObject* value = PyLong_FromUnsignedLongLong(lane->timed_ns[at]);
        if (value == nullptr || PyList_SetItem(timed.get(), at, value) != 0) return nullptr;
    }
    PyObject* told = Py_BuildValue("(IIO)", lane->used, lane->calls, timed.get());
    if (told != nullptr) lane->lent = lane->used = lane->calls = lane->timed = 0;
    return told;
}

PyMethodDef methods[] = {
    {"lend", lend, METH_VARARGS, "Lend the steps from one on, with the decision about each, to this lane."},
    {"take_back", take_back, METH_NOARGS, "Return (steps, calls, ns of those that were timed) since the last time."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"calls", T_UINT, offsetof(StepLane, calls), READONLY, "calls that were booked since the last take_back"},
    {"last_output_ns", T_LONGLONG, offsetof(StepLane, last_output_ns), READONLY, "when a result came last"},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(create)},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, nullptr},
};

PyType_Spec spec = {"llmprism_hooks.StepLane", sizeof(StepLane), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};

}  // namespace

PyTypeObject* make_step_lane_type() { return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec)); }

bool intern_names() {
    struct Name {
        PyObject** place;
        const char* text;
    };
    const Name names[] = {
        {&n_tokens, "num_scheduled_tokens"},
        {&n_new, "scheduled_new_reqs"},
        {&n_cached, "scheduled_cached_reqs"},
        {&n_total, "total_num_scheduled_tokens"},
        {&n_resumed, "resumed_req_ids"},
        {&n_computed, "num_computed_tokens"},
        {&n_counts, "get_request_counts"},
        {&n_kv, "kv_cache_manager"},
        {&n_usage, "usage"},
        {&n_ticket, "_llmprism_ticket"},
        {&n_host_ns, "_llmprism_host_ns"},
    };
    for (const Name& name : names) {
        *name.place = PyUnicode_InternFromString(name.text);
        if (*name.place == nullptr) return false;
    }
    return true;
}

}  // namespace llmprism
