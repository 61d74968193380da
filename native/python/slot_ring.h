// The writing end of a ring (native/ring_writer.py, ADR 0020) for callers that hold the GIL: a put is one call
// into C, so neither another thread nor a signal handler of Python's can come in between, and no lock is needed.
#pragma once
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <ctime>

namespace llmprism {

inline constexpr uint64_t kSlotBytes = 128;
inline constexpr uint64_t kUnknown = UINT64_MAX;

struct SlotRing {
    PyObject_HEAD
    Py_buffer buffer;
    PyObject* look;  // called now and then, and after a drop; may be null
    uint8_t* base;   // null once it is closed or left to a parent
    uint64_t capacity;
    uint64_t limit;  // the head may go so far before the tail is read again
    uint64_t puts;
};

extern PyTypeObject* slot_ring_type;

bool has_room(SlotRing* ring, uint64_t slots);
// Appends whole slots and publishes them at once; false when they were dropped. Runs no Python.
bool put_slots(SlotRing* ring, const uint8_t* record, uint64_t slots);
// Lets Python look after the exporter where it is time to; errors end here.
void look_after(SlotRing* ring, bool is_put);
PyTypeObject* make_slot_ring_type();

inline int64_t read_clock() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace llmprism
