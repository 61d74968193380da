// Steps of one of vLLM's schedulers in which nobody came, went or has prompt left: each request gets one token,
// so the record needs no look at the batch. Python lends it some steps ahead (instrumentation/step_lane.py) and
// takes them back before it books anything else; whatever is not such a step is left to Python, untouched.
#pragma once
#include "slot_ring.h"

namespace llmprism {

PyTypeObject* make_step_lane_type();
bool intern_names();
PyObject* note_scheduled(PyObject* module, PyObject* const* args, Py_ssize_t count);
PyObject* note_output(PyObject* module, PyObject* const* args, Py_ssize_t count);
PyObject* revoke_lanes(PyObject* module, PyObject* unused);

}  // namespace llmprism
