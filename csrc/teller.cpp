// What probe/telling.py's Teller does for most modules: those that return a tensor or a tuple of tensors, called outside a backward.
#include "hooks.h"

namespace numscope {
namespace {

struct Teller {
    PyObject_HEAD
    PyObject *tap, *gradient;  // the listener's; none once it is told nothing more, and no `gradient` where it wants none
    PyObject* caught;          // is given what these raise
    PyObject* leaves;          // of a call whose arguments are nested
    PyObject* optimizers;      // the module that knows of replays
    PyObject *ids, *hook_dict; // numbers for hooks; the class of a tensor's dict of hooks
    PyObject* input_slots;     // "input[key]" by key
    PyObject* output_slots;    // "output[i]" by i
};
constexpr int NUM_SHARED = 9;

Teller* as_teller(PyObject* self) { return reinterpret_cast<Teller*>(self); }

struct GradientHook {
    PyObject_HEAD
    PyObject *teller, *entry, *slot, *shape;
};
PyTypeObject* hook_type = nullptr;

// "input[key]" or "output[key]", made once.
Ref slot_of(PyObject* known, const char* format, PyObject* key) {
    Ref slot = Ref::borrowed(PyDict_GetItemWithError(known, key));
    if (slot || PyErr_Occurred()) return slot;
    slot = Ref(PyUnicode_FromFormat(format, key));
    return slot && PyDict_SetItem(known, key, slot.get()) == 0 ? std::move(slot) : Ref();
}

bool is_flag(PyObject* value) { return value == Py_None || PyLong_Check(value) || PyFloat_Check(value) || PyUnicode_Check(value); }

bool push(PyObject* leaves, Ref slot, PyObject* leaf) {
    const Ref pair(slot ? PyTuple_Pack(2, slot.get(), leaf) : nullptr);
    return pair && PyList_Append(leaves, pair.get()) == 0;
}

// Adds the arguments that are no containers. Returns: 1, 0 if one may be a container, -1 with an exception.
int add_arguments(const Teller* teller, PyObject* leaves, PyObject* args, PyObject* kwargs) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(args); i++) {
        PyObject* value = PyTuple_GetItem(args, i);
        if (!is_flag(value) && !is_tensor(value)) return 0;
        const Ref number(PyLong_FromSsize_t(i));
        if (!number || !push(leaves, slot_of(teller->input_slots, "input[%S]", number.get()), value)) return -1;
    }
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(kwargs, &at, &key, &value);) {
        if (is_flag(value)) continue;  // no input worth a line
        if (!is_tensor(value)) return 0;
        if (!push(leaves, slot_of(teller->input_slots, "input[%S]", key), value)) return -1;
    }
    return 1;
}

// Has the gradient of an output told; `base`: what it is a view of, if its hook is to be there.
bool await_gradient(PyObject* self, PyObject* entry, PyObject* slot, PyObject* output, const Ref& base) {
    if (!has(output, names.requires_grad) || has(output, names.is_leaf)) return true;
    const Ref name = gradient_slot(entry, slot);
    const Ref shape(!name ? nullptr : base ? PyObject_GetAttr(output, names.shape) : Ref::borrowed(Py_None).release());
    const Ref hook(shape ? PyType_GenericAlloc(hook_type, 0) : nullptr);
    if (!hook) return false;
    GradientHook* fields = reinterpret_cast<GradientHook*>(hook.get());
    put(fields->teller, self);
    put(fields->entry, entry);
    put(fields->slot, name.get());
    put(fields->shape, shape.get());
    const Teller* teller = as_teller(self);
    return hook_gradient({teller->ids, teller->hook_dict}, base ? base.get() : output, hook.get());
}

PyObject* py_heard(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    const Teller* teller = as_teller(self);
    if (num_args != 4 || !PyTuple_Check(args[1]) || !PyDict_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "heard(entry, args, kwargs, output): expected four, a tuple and a dict among them");
    PyObject *entry = args[0], *given = args[1], *named = args[2], *output = args[3];
    const bool is_tuple = !is_plain(output) && PyTuple_CheckExact(output);
    for (Py_ssize_t i = 0; is_tuple && i < PyTuple_Size(output); i++)
        if (PyTuple_GetItem(output, i) != Py_None && !is_plain(PyTuple_GetItem(output, i))) Py_RETURN_FALSE;
    if (is_none(teller->tap) || !(is_tuple ? PyTuple_Size(output) > 0 : is_plain(output))) Py_RETURN_FALSE;
    if (is_left_to_python() || is_traced() || is_in_backward() || is_paused(teller->optimizers)) return unless_raised(Py_False);
    // An error from here on is the caller's to judge.
    Ref leaves(PyList_New(0));
    const int plain = leaves ? add_arguments(teller, leaves.get(), given, named) : -1;
    if (plain < 0) return nullptr;
    for (Py_ssize_t i = 0; plain && is_tuple && i < PyTuple_Size(output); i++) {
        const Ref number(PyLong_FromSsize_t(i));
        if (!number || !push(leaves.get(), slot_of(teller->output_slots, "output[%S]", number.get()), PyTuple_GetItem(output, i))) return nullptr;
    }
    if (plain && !is_tuple && !push(leaves.get(), Ref::borrowed(names.output), output)) return nullptr;
    if (!plain) leaves = Ref(PyObject_CallFunctionObjArgs(teller->leaves, given, named, output, nullptr));
    const Ref gradient = Ref::borrowed(teller->gradient);
    const Ref told(leaves ? PyObject_CallFunctionObjArgs(teller->tap, entry, leaves.get(), nullptr) : nullptr);
    if (!told) return nullptr;
    if (is_none(gradient.get()) || !is_grad_enabled()) Py_RETURN_TRUE;
    if (!is_tuple && !await_gradient(self, entry, names.output, output, own_base(output, given, named))) return nullptr;
    for (Py_ssize_t i = 0; is_tuple && i < PyTuple_Size(output); i++) {
        PyObject* leaf = PyTuple_GetItem(output, i);
        const Ref number(PyLong_FromSsize_t(i)), slot = number ? slot_of(teller->output_slots, "output[%S]", number.get()) : Ref();
        if (!slot || (leaf != Py_None && !await_gradient(self, entry, slot.get(), leaf, Ref()))) return nullptr;
    }
    Py_RETURN_TRUE;
}

PyObject* py_close(PyObject* self, PyObject* const*, Py_ssize_t) {
    put(as_teller(self)->tap, nullptr);
    put(as_teller(self)->gradient, nullptr);
    Py_RETURN_NONE;
}

PyObject* py_share(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != NUM_SHARED - 2 || !PyIter_Check(args[5])) return PyErr_Format(PyExc_TypeError, "Teller._share: expected seven, the sixth an iterator");
    if (!knows_torch()) return nullptr;
    for (int i = 0; i < NUM_SHARED - 2; i++) put(references(self)[i], args[i]);
    const Ref inputs(PyDict_New()), outputs(PyDict_New());
    if (!inputs || !outputs) return nullptr;
    put(as_teller(self)->input_slots, inputs.get());
    put(as_teller(self)->output_slots, outputs.get());
    Py_RETURN_NONE;
}

PyObject* call_hook(PyObject* self, PyObject* args, PyObject*) {
    const GradientHook* hook = reinterpret_cast<GradientHook*>(self);
    const Ref kept = Ref::borrowed(hook->teller), gradient = Ref::borrowed(PyTuple_Size(args) == 1 ? PyTuple_GetItem(args, 0) : nullptr);
    if (!gradient || !kept) return PyErr_Format(PyExc_TypeError, "a gradient's hook: expected the gradient");
    const Teller* teller = as_teller(kept.get());
    const Ref tell = Ref::borrowed(teller->gradient);
    // No gradient: the node has several outputs, and this one gets none.
    if (gradient.get() == Py_None || is_none(tell.get()) || is_paused(teller->optimizers)) return unless_raised(Py_None);
    const Ref told(PyObject_CallFunctionObjArgs(tell.get(), hook->entry, hook->slot, gradient.get(), hook->shape, nullptr));
    if (told) Py_RETURN_NONE;
    const Ref done = given_to(teller->caught);
    if (!done) return nullptr;
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    method<py_heard>("heard", "heard(entry, args, kwargs, output): see the class in Python."),
    method<py_close>("close", "close(): see the class in Python."),
    method<py_share>("_share", "_share(...): the first fields, in the struct's order."),
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef no_properties[] = {{nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef no_methods[] = {{nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_teller(PyObject* module) {
    PyObject* hook = add_type<GradientHook, 4>(module, "GradientHook", "numscope.summary._native.GradientHook", no_methods, no_properties, call_hook);
    hook_type = reinterpret_cast<PyTypeObject*>(hook);  // for ever
    // As probe/hook.py's Hook: no warning from torch when a tensor that has it is saved.
    if (!hook || PyObject_SetAttrString(hook, "__torch_unserializable__", Py_True)) return -1;
    return add_type<Teller, NUM_SHARED>(module, "Teller", "numscope.summary._native.Teller", methods, no_properties) ? 0 : -1;
}

}  // namespace numscope
