// The base of detect/journal.py's Journal: appends what was seen, a tuple an event. See `Event` there for its fields.
#include "python.h"

namespace numscope {
namespace {

struct Journal {
    PyObject_HEAD
    PyObject *ledger, *weights_ledger;  // of activations and gradients, of weights
    PyObject *rows, *observe_weight;    // of the weights: their rows by id, and what reads one that is new or has changed
    PyObject *events, *clock;           // the list, an iterator over its order
    PyObject *phase, *forward;          // of gradients, of calls
    PyObject *describe, *none, *other, *not_seen;  // words for what has no handle
    PyObject* call;                     // the number of the outermost call at work
};
constexpr int NUM_SHARED = 12;  // all of these but the last

Journal* as_journal(PyObject* self) { return reinterpret_cast<Journal*>(self); }

// A journal that has its parts: not before `_share`, nor after the collector has cleared it.
const Journal* made(PyObject* self) {
    const Journal* journal = as_journal(self);
    if (journal->ledger && journal->call) return journal;
    PyErr_SetString(PyExc_RuntimeError, "Journal: used before it was made, or after it ended");
    return nullptr;
}

// The items of an event, three objects a leaf: its slot, the ledger, the handle there; or None and words in their places.
class Items {
public:
    Items() : list_(PyList_New(0)) {}

    bool add(PyObject* slot, PyObject* ledger, PyObject* what) {
        return list_ && PyList_Append(list_.get(), slot) == 0 && PyList_Append(list_.get(), ledger) == 0 && PyList_Append(list_.get(), what) == 0;
    }

    bool add(const Journal* journal, PyObject* slot, PyObject* ledger, PyObject* tensor, int64_t handle) {
        if (handle == -2) return false;
        const Ref what(handle >= 0 ? PyLong_FromLongLong(handle) : PyObject_CallFunctionObjArgs(journal->describe, tensor, nullptr));
        return what && add(slot, handle >= 0 ? ledger : Py_None, what.get());
    }

    Ref tuple() const { return Ref(list_ ? PyList_AsTuple(list_.get()) : nullptr); }

private:
    Ref list_;
};

bool append(const Journal* journal, PyObject* entry, PyObject* phase, const Items& items) {
    const Ref all = items.tuple(), order(all ? PyIter_Next(journal->clock) : nullptr);
    const Ref event(order ? PyTuple_Pack(5, entry, phase, journal->call, all.get(), order.get()) : nullptr);
    return event && PyList_Append(journal->events, event.get()) == 0;
}

// The handle of a weight: a row is of its state if the version and the address are those of then.
int64_t weight_handle(const Journal* journal, PyObject* weight) {
    const Ref key(PyLong_FromVoidPtr(weight));
    if (!key) return -2;
    const Ref row = Ref::borrowed(is_plain(weight) ? PyDict_GetItemWithError(journal->rows, key.get()) : nullptr);
    if (row && PyWeakref_GetObject(PyTuple_GetItem(row.get(), 4)) == weight) {
        const int64_t version = PyLong_AsLongLong(PyTuple_GetItem(row.get(), 1));
        const bool same = version >= 0 && version_of(weight) == version &&
                          count_of(torch.data_ptr, weight) == PyLong_AsLongLong(PyTuple_GetItem(row.get(), 2));
        if (same) return PyLong_AsLongLong(PyTuple_GetItem(row.get(), 0));
    }
    const Ref handle(PyObject_CallFunctionObjArgs(journal->observe_weight, weight, nullptr));
    return handle ? number_of(handle.get()) : -2;
}

bool add_weights(const Journal* journal, PyObject* weights, Items& items) {
    if (!PyDict_CheckExact(weights)) {  // a scripted module's
        const Ref pairs(PyMapping_Items(weights));
        if (!pairs) return false;
        for (Py_ssize_t i = 0; i < PyList_Size(pairs.get()); i++) {
            PyObject* pair = PyList_GetItem(pairs.get(), i);
            PyObject *slot = PyTuple_GetItem(pair, 0), *weight = slot ? PyTuple_GetItem(pair, 1) : nullptr;
            if (!weight) return false;
            if (weight != Py_None && !items.add(journal, slot, journal->weights_ledger, weight, weight_handle(journal, weight))) return false;
        }
        return true;
    }
    PyObject *slot, *weight;
    for (Py_ssize_t at = 0; PyDict_Next(weights, &at, &slot, &weight);) {
        const Ref kept_slot = Ref::borrowed(slot), kept = Ref::borrowed(weight);  // another thread may replace it while it is read
        if (weight != Py_None && !items.add(journal, slot, journal->weights_ledger, weight, weight_handle(journal, weight))) return false;
    }
    return true;
}

PyObject* py_share(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    const bool fits = num_args == NUM_SHARED && is_ledger(args[0]) && is_ledger(args[1]) && PyDict_Check(args[2]) && PyList_Check(args[4]) &&
                      PyIter_Check(args[5]);
    if (!fits) return PyErr_Format(PyExc_TypeError, "Journal._share: expected two ledgers, a dict, a function, a list, an iterator, ...");
    if (!knows_torch()) return nullptr;
    for (int i = 0; i < NUM_SHARED; i++) put(references(self)[i], args[i]);
    Py_RETURN_NONE;
}

PyObject* add(const Journal* journal, PyObject* entry, PyObject* phase, PyObject* weights, PyObject* leaves) {
    if (!PyList_Check(leaves)) return PyErr_Format(PyExc_TypeError, "Journal.add: leaves: expected a list");
    Items items;
    if (!add_weights(journal, weights, items)) return nullptr;
    for (Py_ssize_t i = 0; i < PyList_Size(leaves); i++) {
        const Ref pair = Ref::borrowed(PyList_GetItem(leaves, i));  // another thread may change the list while a leaf is read
        if (!PyTuple_Check(pair.get()) || PyTuple_Size(pair.get()) != 2)
            return PyErr_Format(PyExc_TypeError, "Journal.add: leaves: expected pairs of slot and leaf");
        PyObject *slot = PyTuple_GetItem(pair.get(), 0), *leaf = PyTuple_GetItem(pair.get(), 1);
        const bool done = is_tensor(leaf) ? items.add(journal, slot, journal->ledger, leaf, observe_tensor(journal->ledger, leaf, Py_None))
                                          : items.add(slot, Py_None, leaf == Py_None ? journal->none : journal->other);
        if (!done) return nullptr;
    }
    if (!append(journal, entry, phase, items)) return nullptr;
    Py_RETURN_NONE;
}

PyObject* py_add(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != 4) return PyErr_Format(PyExc_TypeError, "add(entry, phase, weights, leaves): got %zd arguments, expected 4", num_args);
    const Journal* journal = made(self);
    return journal ? add(journal, args[0], args[1], args[2], args[3]) : nullptr;
}

PyObject* py_tap(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != 2) return PyErr_Format(PyExc_TypeError, "tap(entry, leaves): got %zd arguments, expected 2", num_args);
    const Journal* journal = made(self);
    const Ref weights(journal ? PyObject_GetAttr(args[0], names.weights) : nullptr);
    return weights ? add(journal, args[0], journal->forward, weights.get(), args[1]) : nullptr;
}

PyObject* py_add_handle(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != 3) return PyErr_Format(PyExc_TypeError, "add_handle(entry, slot, handle): got %zd arguments, expected 3", num_args);
    const Journal* journal = made(self);
    const int64_t handle = journal ? number_of(args[2]) : -2;
    if (handle == -2) return PyErr_Occurred() ? nullptr : PyErr_Format(PyExc_ValueError, "add_handle: got handle -2, expected one, or -1");
    const bool seen = handle >= 0;
    Items items;
    if (!items.add(args[1], seen ? journal->ledger : Py_None, seen ? args[2] : journal->not_seen)) return nullptr;
    if (!append(journal, args[0], journal->phase, items)) return nullptr;
    Py_RETURN_NONE;
}

PyObject* py_add_gradient(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args < 3 || num_args > 4)
        return PyErr_Format(PyExc_TypeError, "add_gradient(entry, slot, gradient, shape=None): got %zd arguments", num_args);
    const Journal* journal = made(self);
    if (!journal) return nullptr;
    Items items;
    const int64_t handle = observe_tensor(journal->ledger, args[2], num_args == 4 ? args[3] : Py_None);
    if (!items.add(journal, args[1], journal->ledger, args[2], handle) || !append(journal, args[0], journal->phase, items)) return nullptr;
    Py_RETURN_NONE;
}

PyObject* get_call(PyObject* self, void*) { return made(self) ? Ref::borrowed(as_journal(self)->call).release() : nullptr; }

int set_call(PyObject* self, PyObject* value, void*) {
    if (!value) {
        PyErr_SetString(PyExc_AttributeError, "call: expected a number, and it can't be deleted");
        return -1;
    }
    put(as_journal(self)->call, value);
    return 0;
}

PyMethodDef methods[] = {
    method<py_add>("add", "add(entry, phase, weights, leaves): see the class in Python."),
    method<py_tap>("tap", "tap(entry, leaves): see the class in Python."),
    method<py_add_gradient>("add_gradient", "add_gradient(entry, slot, gradient, shape=None): see the class in Python."),
    method<py_add_handle>("add_handle", "add_handle(entry, slot, handle): see the class in Python."),
    method<py_share>("_share", "_share(...): all but the call's number, in the struct's order."),
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef properties[] = {
    {"call", get_call, set_call, "the number of the outermost call at work", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

int add_journal(PyObject* module) {
    return add_type<Journal, NUM_SHARED + 1>(module, "Journal", "numscope.summary._native.Journal", methods, properties) ? 0 : -1;
}

}  // namespace numscope
