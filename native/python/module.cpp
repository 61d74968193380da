// The extension llmprism_hooks: what of our hooks runs on an engine's thread in each step, without a Python object
// per request. Optional: instrumentation works without it, slower (native/extension.py).
#include "slot_ring.h"
#include "step_lane.h"

namespace {

constexpr long kVersion = 1;  // that of native/extension.py; raised with every change of what Python calls

PyMethodDef functions[] = {
    {"note_scheduled", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(llmprism::note_scheduled)),
     METH_FASTCALL, "Book (scheduler, output, start_ns); False when that is Python's to do."},
    {"note_output", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(llmprism::note_output)), METH_FASTCALL,
     "Book (scheduler, output, ready_ns); False when that is Python's to do."},
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
