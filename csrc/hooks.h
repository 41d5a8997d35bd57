// What modules' and gradients' hooks share, whoever they are for.
#pragma once

#include "python.h"

namespace numscope {

inline bool is_none(PyObject* object) { return !object || object == Py_None; }

// Whether a replay runs in this thread; `optimizers`: the module that knows of replays.
bool is_paused(PyObject* optimizers);

// An answer to the caller, unless an exception is set: of the script's, which struck where Python was asked.
inline PyObject* unless_raised(PyObject* answer) { return PyErr_Occurred() ? nullptr : Ref::borrowed(answer).release(); }

// `own_base` of probe/walk.py, of a tensor; null if there is none.
Ref own_base(PyObject* output, PyObject* args, PyObject* kwargs);

struct HookParts {
    PyObject *ids, *hook_dict;  // numbers for hooks; the class of a tensor's dict of hooks
};

// `hook_gradient` of probe/hook.py.
bool hook_gradient(const HookParts& parts, PyObject* tensor, PyObject* hook);

// What a hook raises would end the script's backward: it goes to `caught`, which raises again what is meant for the script. Null: it did.
Ref given_to(PyObject* caught);

}  // namespace numscope
