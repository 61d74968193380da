#include "slot_ring.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace llmprism {

PyTypeObject* slot_ring_type = nullptr;

namespace {

constexpr uint64_t kHeaderBytes = 256;
constexpr size_t kHeadWord = 8, kDroppedWord = 9, kHookTimeWord = 11, kTailWord = 16;
constexpr uint64_t kLookEveryPuts = 16;

uint64_t* words_of(SlotRing* ring) { return reinterpret_cast<uint64_t*>(ring->base); }

void let_go(SlotRing* ring) {
    if (ring->buffer.obj != nullptr) PyBuffer_Release(&ring->buffer);
    ring->base = nullptr;
    Py_CLEAR(ring->look);
}

PyObject* create(PyTypeObject* type, PyObject* args, PyObject*) {
    PyObject* memory = nullptr;
    if (!PyArg_ParseTuple(args, "O", &memory)) return nullptr;
    auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
    PyObject* made = allocate(type, 0);
    if (made == nullptr) return nullptr;
    auto* ring = reinterpret_cast<SlotRing*>(made);
    if (PyObject_GetBuffer(memory, &ring->buffer, PyBUF_SIMPLE | PyBUF_WRITABLE) != 0) {
        Py_DECREF(made);
        return nullptr;
    }
    const auto bytes = static_cast<uint64_t>(ring->buffer.len);
    const uint64_t capacity = bytes > kHeaderBytes ? (bytes - kHeaderBytes) / kSlotBytes : 0;
    const bool is_aligned = reinterpret_cast<uintptr_t>(ring->buffer.buf) % alignof(uint64_t) == 0;
    if (capacity == 0 || (capacity & (capacity - 1)) != 0 || bytes != kHeaderBytes + capacity * kSlotBytes ||
        !is_aligned) {
        Py_DECREF(made);
        PyErr_SetString(PyExc_ValueError, "this memory is no ring");
        return nullptr;
    }
    ring->base = static_cast<uint8_t*>(ring->buffer.buf);
    ring->capacity = ring->limit = capacity;
    return made;
}

void destroy(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    let_go(reinterpret_cast<SlotRing*>(self));
    reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

PyObject* put(PyObject* self, PyObject* record) {
    auto* ring = reinterpret_cast<SlotRing*>(self);
    char* bytes = nullptr;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(record, &bytes, &size) != 0) return nullptr;
    const bool is_put =
        put_slots(ring, reinterpret_cast<const uint8_t*>(bytes), static_cast<uint64_t>(size) / kSlotBytes);
    look_after(ring, is_put);
    return PyBool_FromLong(is_put);
}

PyObject* add_hook_time(PyObject* self, PyObject* duration) {
    auto* ring = reinterpret_cast<SlotRing*>(self);
    const uint64_t duration_ns = PyLong_AsUnsignedLongLong(duration);
    if (duration_ns == kUnknown && PyErr_Occurred() != nullptr) return nullptr;
    if (ring->base != nullptr) words_of(ring)[kHookTimeWord] += duration_ns;
    Py_RETURN_NONE;
}

PyObject* close(PyObject* self, PyObject*) {
    let_go(reinterpret_cast<SlotRing*>(self));
    Py_RETURN_NONE;
}

PyObject* watch(PyObject* self, PyObject* look) {
    auto* ring = reinterpret_cast<SlotRing*>(self);
    PyObject* before = ring->look;
    ring->look = look == Py_None ? nullptr : Py_NewRef(look);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"put", put, METH_O, "Append one record (whole slots) and publish it; False when it was dropped."},
    {"add_hook_time", add_hook_time, METH_O, "Add to the time that hooks took in this process."},
    {"watch", watch, METH_O, "Call this now and then, and after a record was dropped."},
    {"close", close, METH_NOARGS, "Let go of the memory; nothing is put from now on."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(create)},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"llmprism_hooks.SlotRing", sizeof(SlotRing), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

bool has_room(SlotRing* ring, uint64_t slots) {
    if (ring->base == nullptr || slots == 0) return false;
    const uint64_t* words = words_of(ring);
    const uint64_t after = words[kHeadWord] + slots;
    if (after <= ring->limit) return true;
    auto* tail = const_cast<uint64_t*>(&words[kTailWord]);
    ring->limit = std::atomic_ref<uint64_t>(*tail).load(std::memory_order_acquire) + ring->capacity;
    return after <= ring->limit;
}

bool put_slots(SlotRing* ring, const uint8_t* record, uint64_t slots) {
    if (!has_room(ring, slots) || slots > ring->capacity) {
        if (ring->base != nullptr && slots != 0) words_of(ring)[kDroppedWord] += 1;
        return false;
    }
    uint64_t* words = words_of(ring);
    const uint64_t head = words[kHeadWord];
    const uint64_t first = head & (ring->capacity - 1);
    const uint64_t straight = std::min(slots, ring->capacity - first);
    uint8_t* start = ring->base + kHeaderBytes;
    std::memcpy(start + first * kSlotBytes, record, straight * kSlotBytes);
    if (straight < slots) {
        std::memcpy(start, record + straight * kSlotBytes, (slots - straight) * kSlotBytes);
    }
    std::atomic_ref<uint64_t>(words[kHeadWord]).store(head + slots, std::memory_order_release);
    return true;
}

void look_after(SlotRing* ring, bool is_put) {
    ring->puts += 1;
    if (ring->look == nullptr || (is_put && ring->puts < kLookEveryPuts)) return;
    ring->puts = 0;
    PyObject* look = Py_NewRef(ring->look);
    PyObject* done = PyObject_CallNoArgs(look);
    if (done == nullptr) PyErr_Clear();
    Py_XDECREF(done);
    Py_DECREF(look);
}

PyTypeObject* make_slot_ring_type() { return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec)); }

}  // namespace llmprism
