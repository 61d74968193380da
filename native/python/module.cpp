// The extension llmprism_hooks: what of our hooks runs on an engine's thread in each step, without a Python object
// per request. Optional: instrumentation works without it, slower (native/extension.py).
#include "request_records.h"
#include "slot_ring.h"
#include "step_lane.h"

namespace {

constexpr long kVersion = 3;  // that of native/extension.py; raised with every change of what Python calls

using FastCall = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t);

PyMethodDef fast(const char* name, FastCall call, const char* what) {
    return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(call)), METH_FASTCALL, what};
}

PyMethodDef functions[] = {
    fast("note_scheduled", llmprism::note_scheduled,
         "Book (scheduler, output, start_ns); False when that is Python's to do."),
    fast("note_output", llmprism::note_output, "Book (scheduler, output, ready_ns); False when that is Python's to do."),
    fast("put_arrival", llmprism::put_arrival, "Book a request's arrival; its carrier's flags, or None."),
    fast("put_events", llmprism::put_events, "Book an event of several requests; False when that is Python's to do."),
    fast("put_end", llmprism::put_end, "Book a request's end; False when that is Python's to do."),
    {"derive_handle", llmprism::derive_handle, METH_O, "Return the handle by which every process knows a request."},
    {"revoke_lanes", llmprism::revoke_lanes, METH_NOARGS, "Leave every step to Python until it lends some again."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "llmprism_hooks", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr,
};

bool fill(PyObject* module) {
    llmprism::slot_ring_type = llmprism::make_slot_ring_type();
    PyTypeObject* lane = llmprism::make_step_lane_type();
    if (llmprism::slot_ring_type == nullptr || lane == nullptr || !llmprism::intern_names()) return false;
    return PyModule_AddObjectRef(module, "SlotRing", reinterpret_cast<PyObject*>(llmprism::slot_ring_type)) == 0 &&
           PyModule_AddObjectRef(module, "StepLane", reinterpret_cast<PyObject*>(lane)) == 0 &&
           PyModule_AddIntConstant(module, "VERSION", kVersion) == 0;
}

}  // namespace

PyMODINIT_FUNC PyInit_llmprism_hooks() {
    PyObject* module = PyModule_Create(&definition);
    if (module != nullptr && !fill(module)) Py_CLEAR(module);
    return module;
}
