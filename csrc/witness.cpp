// What probe/witness.py's Witness does for most modules: those that return a tensor or a tuple of tensors, called outside a backward.
#include "hooks.h"

namespace numscope {
namespace {

constexpr long LEAVES = 1, SITES = 2;  // as in witness.py
constexpr Py_ssize_t COMPACT = 65536;  // as in inspect/tally.py

struct Witness {
    PyObject_HEAD
    PyObject *caught, *caught_by_reader;  // are given what the listener, and what the reader raises
    PyObject* leaves;                     // of a call whose arguments are nested
    PyObject* optimizers;                 // the module that knows of replays
    PyObject *ids, *hook_dict;            // numbers for hooks; the class of a tensor's dict of hooks
    PyObject *tap, *gradient;             // the listener's; none if there is none, and no `gradient` where it wants none
    PyObject *ledger, *parts;             // the reader's; none if there is none
    PyObject *plain, *observe, *begins;
    PyObject *input_slots, *output_slots; // "input[key]" by key, "output[i]" by i
};
constexpr int NUM_GIVEN = 6, NUM_REFERENCES = 15;

Witness* as_witness(PyObject* self) { return reinterpret_cast<Witness*>(self); }

struct GradientHook {
    PyObject_HEAD
    PyObject* witness;
    PyObject *gradient, *entry, *slot;  // for the listener that was there then; null: not for it
    PyObject *parts, *site;             // for the reader, likewise
    PyObject* shape;                    // the output's, where the gradient has another one
};
PyTypeObject* hook_type = nullptr;

// ---- the reader

bool is_wanted(PyObject* site) { return site != Py_None; }

bool is_floating(PyObject* object) { return is_plain(object) && says(torch.is_floating_point, object); }

bool is_plain_site(PyObject* plain, int64_t site) {
    return plain && site >= 0 && site < PyBytes_Size(plain) && PyBytes_AsString(plain)[site];
}

// Puts a tensor into the reader's site. Returns: false with an exception.
bool show(const Witness* witness, PyObject* site, PyObject* tensor, PyObject* shape) {
    const Ref ledger = Ref::borrowed(witness->ledger), parts = Ref::borrowed(witness->parts), observe = Ref::borrowed(witness->observe);
    if (is_none(ledger.get())) return true;
    if (is_plain_site(witness->plain, number_of(site)) && is_plain(tensor) && !is_held(ledger.get()) && PyList_Size(parts.get()) < 2 * COMPACT) {
        const int64_t handle = observe_tensor(ledger.get(), tensor, Py_None);
        if (handle == -2) return false;
        if (handle >= 0) {
            const Ref place(PyLong_FromLongLong(handle));  // from here on nothing else runs
            return place && !PyList_Append(parts.get(), site) && !PyList_Append(parts.get(), place.get());
        }
    }
    return bool(Ref(PyObject_CallFunctionObjArgs(observe.get(), site, tensor, shape, nullptr)));
}

// What a module takes for its activation, if it is its first argument; else null.
PyObject* taken(PyObject* args, PyObject* kwargs) {
    PyObject *key, *first = nullptr;
    Py_ssize_t at = 0;
    if (PyTuple_Size(args)) first = PyTuple_GetItem(args, 0);
    else if (!PyDict_Next(kwargs, &at, &key, &first)) return nullptr;
    return is_floating(first) ? first : nullptr;
}

bool show_call(const Witness* witness, PyObject* sites, PyObject* input, PyObject* output) {
    PyObject *activation = PyTuple_GetItem(sites, 0), *returned = PyTuple_GetItem(sites, 1);
    if (!is_wanted(activation) && !is_wanted(returned)) return true;
    const Ref kept = Ref::borrowed(input), begins = Ref::borrowed(witness->begins), begun(PyObject_CallNoArgs(begins.get()));
    if (!begun || (is_wanted(activation) && !show(witness, activation, input, Py_None))) return false;
    return !is_wanted(returned) || show(witness, returned, output, Py_None);
}

// ---- the listener

// "input[key]" or "output[key]", made once.
Ref slot_of(PyObject* known, const char* format, PyObject* key) {
    Ref slot = Ref::borrowed(PyDict_GetItemWithError(known, key));
    if (slot || PyErr_Occurred()) return slot;
    slot = Ref(PyUnicode_FromFormat(format, key));
    return slot && PyDict_SetItem(known, key, slot.get()) == 0 ? std::move(slot) : Ref();
}

Ref output_slot(const Witness* witness, Py_ssize_t i) {
    const Ref number(PyLong_FromSsize_t(i));
    return number ? slot_of(witness->output_slots, "output[%S]", number.get()) : Ref();
}

bool is_flag(PyObject* value) { return value == Py_None || PyLong_Check(value) || PyFloat_Check(value) || PyUnicode_Check(value); }

bool push(PyObject* leaves, Ref slot, PyObject* leaf) {
    const Ref pair(slot ? PyTuple_Pack(2, slot.get(), leaf) : nullptr);
    return pair && PyList_Append(leaves, pair.get()) == 0;
}

// Adds the arguments that are no containers. Returns: 1, 0 if one may be a container, -1 with an exception.
int add_arguments(const Witness* witness, PyObject* leaves, PyObject* args, PyObject* kwargs) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(args); i++) {
        PyObject* value = PyTuple_GetItem(args, i);
        if (!is_flag(value) && !is_tensor(value)) return 0;
        const Ref number(PyLong_FromSsize_t(i));
        if (!number || !push(leaves, slot_of(witness->input_slots, "input[%S]", number.get()), value)) return -1;
    }
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(kwargs, &at, &key, &value);) {
        if (is_flag(value)) continue;  // no input worth a line
        if (!is_tensor(value)) return 0;
        if (!push(leaves, slot_of(witness->input_slots, "input[%S]", key), value)) return -1;
    }
    return 1;
}

bool is_tuple_of_tensors(PyObject* output) {
    if (!PyTuple_CheckExact(output) || !PyTuple_Size(output)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_Size(output); i++)
        if (PyTuple_GetItem(output, i) != Py_None && !is_plain(PyTuple_GetItem(output, i))) return false;
    return true;
}

// Gives the listener a call's leaves. Returns: false with an exception.
bool tell(const Witness* witness, PyObject* entry, PyObject* args, PyObject* kwargs, PyObject* output) {
    const Ref tap = Ref::borrowed(witness->tap);
    Ref leaves(PyList_New(0));
    const int plain = leaves ? add_arguments(witness, leaves.get(), args, kwargs) : -1;
    if (plain < 0) return false;
    if (!plain) leaves = Ref(PyObject_CallFunctionObjArgs(witness->leaves, args, kwargs, output, nullptr));
    else if (!PyTuple_Check(output)) leaves = push(leaves.get(), Ref::borrowed(names.output), output) ? std::move(leaves) : Ref();
    else
        for (Py_ssize_t i = 0; i < PyTuple_Size(output); i++)
            if (!push(leaves.get(), output_slot(witness, i), PyTuple_GetItem(output, i))) return false;
    return leaves && Ref(PyObject_CallFunctionObjArgs(tap.get(), entry, leaves.get(), nullptr));
}

// ---- gradients

// Awaits the gradient of an output. `base`: what it is a view of, if the hook is to be there; `entry`, `site`: null where it is not for the
// listener, or not for the reader.
bool await_gradient(PyObject* self, PyObject* entry, PyObject* slot, PyObject* site, PyObject* output, const Ref& base) {
    if ((!entry && !site) || !has(output, names.requires_grad) || has(output, names.is_leaf)) return true;
    const Witness* witness = as_witness(self);
    const Ref name = entry ? gradient_slot(entry, slot) : Ref();
    const Ref shape(entry && !name ? nullptr : base ? PyObject_GetAttr(output, names.shape) : Ref::borrowed(Py_None).release());
    const Ref hook(shape ? PyType_GenericAlloc(hook_type, 0) : nullptr);
    if (!hook) return false;
    GradientHook* fields = reinterpret_cast<GradientHook*>(hook.get());
    put(fields->witness, self);
    put(fields->shape, shape.get());
    if (entry) {
        put(fields->gradient, witness->gradient);
        put(fields->entry, entry);
        put(fields->slot, name.get());
    }
    if (site) {
        put(fields->parts, witness->parts);
        put(fields->site, site);
    }
    return hook_gradient({witness->ids, witness->hook_dict}, base ? base.get() : output, hook.get());
}

bool await_gradients(PyObject* self, PyObject* entry, PyObject* site, PyObject* args, PyObject* kwargs, PyObject* output) {
    if (!entry && !site) return true;
    if (!PyTuple_Check(output)) return await_gradient(self, entry, names.output, site, output, own_base(output, args, kwargs));
    for (Py_ssize_t i = 0; i < PyTuple_Size(output); i++) {
        PyObject* leaf = PyTuple_GetItem(output, i);
        const Ref slot = output_slot(as_witness(self), i);
        if (!slot || (leaf != Py_None && !await_gradient(self, entry, slot.get(), nullptr, leaf, Ref()))) return false;
    }
    return true;
}

PyObject* call_hook(PyObject* self, PyObject* args, PyObject*) {
    const GradientHook* hook = reinterpret_cast<GradientHook*>(self);
    const Ref kept = Ref::borrowed(hook->witness), value = Ref::borrowed(PyTuple_Size(args) == 1 ? PyTuple_GetItem(args, 0) : nullptr);
    if (!value || !kept) return PyErr_Format(PyExc_TypeError, "a gradient's hook: expected the gradient");
    const Witness* witness = as_witness(kept.get());
    // No gradient: the node has several outputs, and this one gets none.
    const bool told = hook->gradient && hook->gradient == witness->gradient, shown = hook->parts && hook->parts == witness->parts;
    if (value.get() == Py_None || !(told || shown) || is_paused(witness->optimizers)) return unless_raised(Py_None);
    const Ref tell = Ref::borrowed(hook->gradient);
    if (told && !Ref(PyObject_CallFunctionObjArgs(tell.get(), hook->entry, hook->slot, value.get(), hook->shape, nullptr)) && !given_to(witness->caught))
        return nullptr;
    if (shown && hook->parts == witness->parts && !show(witness, hook->site, value.get(), hook->shape) && !given_to(witness->caught_by_reader))
        return nullptr;
    Py_RETURN_NONE;
}

// ---- methods

PyObject* py_saw(PyObject* self, PyObject* const* given, Py_ssize_t num_given) {
    if (num_given != 6 || !(given[1] == Py_None || (PyTuple_Check(given[1]) && PyTuple_Size(given[1]) == 3)) || !PyTuple_Check(given[3]) || !PyDict_Check(given[4]))
        return PyErr_Format(PyExc_TypeError, "saw(entry, sites, hears, args, kwargs, output): expected None or three sites, a tuple, a dict");
    const Witness* witness = as_witness(self);
    PyObject *entry = given[0], *sites = given[1], *args = given[3], *kwargs = given[4], *output = given[5], *site = nullptr;
    const bool is_single = is_plain(output);
    bool tells = entry != Py_None && !is_none(witness->tap) && (is_single || is_tuple_of_tensors(output));
    bool shows = sites != Py_None && !is_none(witness->ledger) && is_single;
    long left = (entry == Py_None ? 0 : LEAVES) | (sites == Py_None ? 0 : SITES);
    const bool for_python = !(tells || shows) || is_left_to_python() || is_traced() || is_in_backward() || is_paused(witness->optimizers);
    if (PyErr_Occurred()) return nullptr;
    if (for_python) return PyLong_FromLong(left);
    const bool wants_input = shows && is_wanted(PyTuple_GetItem(sites, 0));
    const Ref input = Ref::borrowed(wants_input ? taken(args, kwargs) : nullptr);
    shows = shows && is_floating(output) && is_grad_enabled() && (input || !wants_input);
    if (shows && is_wanted(PyTuple_GetItem(sites, 2)) && has(output, names.requires_grad)) {
        site = PyTuple_GetItem(sites, 2);
        shows = !has(output, names.is_leaf);  // else its hook would outlive the step
    }
    // An error from here on is for those whose it is.
    PyObject *for_listener = nullptr, *for_reader = nullptr;
    if (tells) {
        left &= ~LEAVES;
        if (tell(witness, entry, args, kwargs, output))
            for_listener = given[2] == Py_True && !is_none(witness->gradient) && is_grad_enabled() ? entry : nullptr;
        else if (!given_to(witness->caught)) return nullptr;
    }
    if (shows) {
        left &= ~SITES;
        if (show_call(witness, sites, input.get(), output)) for_reader = is_none(witness->ledger) ? nullptr : site;
        else if (!given_to(witness->caught_by_reader)) return nullptr;
    }
    if (!await_gradients(self, for_listener, for_reader, args, kwargs, output) && !given_to(for_listener ? witness->caught : witness->caught_by_reader))
        return nullptr;
    return PyLong_FromLong(left);
}

PyObject* py_listen(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != 2) return PyErr_Format(PyExc_TypeError, "listen(tap, gradient): got %zd arguments", num_args);
    put(as_witness(self)->tap, args[0]);
    put(as_witness(self)->gradient, args[1]);
    Py_RETURN_NONE;
}

PyObject* py_read(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    const bool fits = num_args == 5 && (args[0] == Py_None || is_ledger(args[0])) && PyList_Check(args[1]) && PyBytes_Check(args[2]);
    if (!fits) return PyErr_Format(PyExc_TypeError, "read(ledger, parts, plain, observe, begins): expected a ledger or None, a list, bytes");
    PyObject** fields = &as_witness(self)->ledger;
    for (int i = 0; i < 5; i++) put(fields[i], args[i]);
    Py_RETURN_NONE;
}

PyObject* py_share(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != NUM_GIVEN || !PyIter_Check(args[4]))
        return PyErr_Format(PyExc_TypeError, "Witness._share: expected six, the fifth an iterator");
    if (!knows_torch()) return nullptr;
    for (int i = 0; i < NUM_GIVEN; i++) put(references(self)[i], args[i]);
    const Ref inputs(PyDict_New()), outputs(PyDict_New());
    if (!inputs || !outputs) return nullptr;
    put(as_witness(self)->input_slots, inputs.get());
    put(as_witness(self)->output_slots, outputs.get());
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    method<py_saw>("saw", "saw(entry, sites, hears, args, kwargs, output): see the class in Python."),
    method<py_listen>("listen", "listen(tap, gradient): see the class in Python."),
    method<py_read>("read", "read(ledger, parts, plain, observe, begins): see the class in Python."),
    method<py_share>("_share", "_share(...): the first fields, in the struct's order."),
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef no_properties[] = {{nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef no_methods[] = {{nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_witness(PyObject* module) {
    PyObject* hook = add_type<GradientHook, 7>(module, "GradientHook", "numscope.summary._native.GradientHook", no_methods, no_properties, call_hook);
    hook_type = reinterpret_cast<PyTypeObject*>(hook);  // for ever
    // As probe/hook.py's Hook: no warning from torch when a tensor that has it is saved.
    if (!hook || PyObject_SetAttrString(hook, "__torch_unserializable__", Py_True)) return -1;
    return add_type<Witness, NUM_REFERENCES>(module, "Witness", "numscope.summary._native.Witness", methods, no_properties) ? 0 : -1;
}

}  // namespace numscope
