// What probe/showing.py's Shower does for most modules: those that are given a tensor first, and return one, outside a backward.
#include "hooks.h"

namespace numscope {
namespace {

struct Shower {
    PyObject_HEAD
    PyObject *tally, *observe;  // where tensors go, and what takes those that it leaves to Python; none once nothing more is shown
    PyObject* begins;           // is called when a module has run forward
    PyObject* caught;           // is given what a gradient's hook raises
    PyObject* optimizers;       // the module that knows of replays
    PyObject *ids, *hook_dict;  // numbers for hooks; the class of a tensor's dict of hooks
};
constexpr int NUM_SHARED = 7;

Shower* as_shower(PyObject* self) { return reinterpret_cast<Shower*>(self); }

struct ShownHook {
    PyObject_HEAD
    PyObject *shower, *site, *shape;
};
PyTypeObject* hook_type = nullptr;

bool show(const Shower* shower, PyObject* site, PyObject* tensor, PyObject* shape) {
    const Ref tally = Ref::borrowed(shower->tally), observe = Ref::borrowed(shower->observe);
    if (is_none(tally.get())) return true;
    const int done = observe_site(tally.get(), PyLong_AsLongLong(site), tensor);
    return done ? done > 0 : bool(Ref(PyObject_CallFunctionObjArgs(observe.get(), site, tensor, shape, nullptr)));
}

bool is_wanted(PyObject* site) { return site != Py_None; }

bool is_number(PyObject* object) { return is_plain(object) && says(torch.is_floating_point, object); }

// What a module takes for its activation, if it is its first argument; else null.
PyObject* taken(PyObject* args, PyObject* kwargs) {
    PyObject *key, *first = nullptr;
    Py_ssize_t at = 0;
    if (PyTuple_Size(args)) first = PyTuple_GetItem(args, 0);
    else if (!PyDict_Next(kwargs, &at, &key, &first)) return nullptr;
    return is_number(first) ? first : nullptr;
}

PyObject* py_shown(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != 4 || !PyTuple_Check(args[0]) || PyTuple_Size(args[0]) != 3 || !PyTuple_Check(args[1]) || !PyDict_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "shown(sites, args, kwargs, output): expected three sites, a tuple, a dict and what was returned");
    const Shower* shower = as_shower(self);
    PyObject *activation = PyTuple_GetItem(args[0], 0), *output = PyTuple_GetItem(args[0], 1), *gradient = PyTuple_GetItem(args[0], 2);
    const Ref input = Ref::borrowed(is_wanted(activation) ? taken(args[1], args[2]) : nullptr), returned = Ref::borrowed(args[3]);
    const bool fits = !is_none(shower->tally) && is_number(returned.get()) && (input || !is_wanted(activation));
    if (!fits || is_left_to_python() || is_traced() || is_in_backward() || !is_grad_enabled() || is_paused(shower->optimizers)) return unless_raised(Py_False);
    const bool awaits = is_wanted(gradient) && has(returned.get(), names.requires_grad);
    if (awaits && has(returned.get(), names.is_leaf)) Py_RETURN_FALSE;  // its hook would outlive the step
    // An error from here on is the caller's to judge.
    if (is_wanted(activation) || is_wanted(output)) {
        const Ref begins = Ref::borrowed(shower->begins), begun(PyObject_CallNoArgs(begins.get()));
        if (!begun) return nullptr;
    }
    if (is_wanted(activation) && !show(shower, activation, input.get(), Py_None)) return nullptr;
    if (is_wanted(output) && !show(shower, output, returned.get(), Py_None)) return nullptr;
    if (!awaits) Py_RETURN_TRUE;
    const Ref base = own_base(returned.get(), args[1], args[2]);
    const Ref shape(base ? PyObject_GetAttr(returned.get(), names.shape) : Ref::borrowed(Py_None).release());
    const Ref hook(shape ? PyType_GenericAlloc(hook_type, 0) : nullptr);
    if (!hook) return nullptr;
    ShownHook* fields = reinterpret_cast<ShownHook*>(hook.get());
    put(fields->shower, self);
    put(fields->site, gradient);
    put(fields->shape, shape.get());
    if (!hook_gradient({shower->ids, shower->hook_dict}, base ? base.get() : returned.get(), hook.get())) return nullptr;
    Py_RETURN_TRUE;
}

PyObject* py_close(PyObject* self, PyObject* const*, Py_ssize_t) {
    put(as_shower(self)->tally, nullptr);
    put(as_shower(self)->observe, nullptr);
    Py_RETURN_NONE;
}

PyObject* py_share(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != NUM_SHARED || !is_tally(args[0]) || !PyIter_Check(args[5]))
        return PyErr_Format(PyExc_TypeError, "Shower._share: expected seven, the first a tally, the sixth an iterator");
    if (!knows_torch()) return nullptr;
    for (int i = 0; i < NUM_SHARED; i++) put(references(self)[i], args[i]);
    Py_RETURN_NONE;
}

PyObject* call_hook(PyObject* self, PyObject* args, PyObject*) {
    const ShownHook* hook = reinterpret_cast<ShownHook*>(self);
    const Ref kept = Ref::borrowed(hook->shower), gradient = Ref::borrowed(PyTuple_Size(args) == 1 ? PyTuple_GetItem(args, 0) : nullptr);
    if (!gradient || !kept) return PyErr_Format(PyExc_TypeError, "a gradient's hook: expected the gradient");
    const Shower* shower = as_shower(kept.get());
    // No gradient: the node has several outputs, and this one gets none.
    if (gradient.get() == Py_None || is_none(shower->tally) || is_paused(shower->optimizers)) return unless_raised(Py_None);
    if (show(shower, hook->site, gradient.get(), hook->shape)) Py_RETURN_NONE;
    const Ref done = given_to(shower->caught);
    if (!done) return nullptr;
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    method<py_shown>("shown", "shown(sites, args, kwargs, output): see the class in Python."),
    method<py_close>("close", "close(): see the class in Python."),
    method<py_share>("_share", "_share(...): the fields, in the struct's order."),
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef no_properties[] = {{nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef no_methods[] = {{nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_shower(PyObject* module) {
    PyObject* hook = add_type<ShownHook, 3>(module, "ShownHook", "numscope.summary._native.ShownHook", no_methods, no_properties, call_hook);
    hook_type = reinterpret_cast<PyTypeObject*>(hook);  // for ever
    // As probe/hook.py's Hook: no warning from torch when a tensor that has it is saved.
    if (!hook || PyObject_SetAttrString(hook, "__torch_unserializable__", Py_True)) return -1;
    return add_type<Shower, NUM_SHARED>(module, "Shower", "numscope.summary._native.Shower", methods, no_properties) ? 0 : -1;
}

}  // namespace numscope
