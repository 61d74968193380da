// A request's records, packed and put in one call: arrival, events, end (native/ring_records.py has their twins).
// What is out of the ordinary (an id to be cut, a carrier of another host, a value out of range) is left to Python.
#pragma once
#include "slot_ring.h"

namespace llmprism {

// (ring, request id, carrier, host mark, now_ns): books arrival and QUEUED; the carrier's flags, None for Python's.
PyObject* put_arrival(PyObject* module, PyObject* const* args, Py_ssize_t count);
// (ring, event, time_ns, tokens by request id, step): books one event for each, at once; False for Python's.
PyObject* put_events(PyObject* module, PyObject* const* args, Py_ssize_t count);
// (ring, request id, time_ns, prompt, output, cached, steps, preemptions, finish): False for Python's.
PyObject* put_end(PyObject* module, PyObject* const* args, Py_ssize_t count);
PyObject* derive_handle(PyObject* module, PyObject* request_id);

}  // namespace llmprism
