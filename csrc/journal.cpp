// The base of detect/journal.py's Journal: appends what was seen, a tuple an event. See `Event` there for its fields.
#include "python.h"

namespace numscope {
namespace {

struct Journal {
    PyObject_HEAD
    PyObject *ledger, *weights_ledger;  // of activations and gradients, of weights
    PyObject* all_weights;              // what reads the weights
    PyObject *events, *clock;           // the list, an iterator over its order
    PyObject* folded;                   // a list of parameters' gradients, which are made events where somebody asks
    PyObject *phase, *forward;          // of gradients, of calls
    PyObject *describe, *none, *other;  // words for what has no handle
    PyObject* gradient_of;              // what an optimizer gets of a parameter
    PyObject* call;                     // the number of the outermost call at work
    PyObject* before_gradient;          // is called before the next gradient is added; it takes itself away
};
constexpr int NUM_SHARED = 12;  // all of these but the last two

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

bool append(PyObject* self, PyObject* entry, PyObject* phase, const Items& items) {
    const Journal* journal = as_journal(self);
    if (PyList_Size(journal->folded) && !Ref(PyObject_CallMethod(self, "unfold", nullptr))) return false;  // they came before
    const Ref all = items.tuple(), order(all ? PyIter_Next(journal->clock) : nullptr);
    const Ref event(order ? PyTuple_Pack(5, entry, phase, journal->call, all.get(), order.get()) : nullptr);
    return event && PyList_Append(journal->events, event.get()) == 0;
}

bool add_weights(const Journal* journal, PyObject* weights, Items& items) {
    if (!PyDict_CheckExact(weights)) {  // a scripted module's
        const Ref pairs(PyMapping_Items(weights));
        if (!pairs) return false;
        for (Py_ssize_t i = 0; i < PyList_Size(pairs.get()); i++) {
            PyObject* pair = PyList_GetItem(pairs.get(), i);
            PyObject *slot = PyTuple_GetItem(pair, 0), *weight = slot ? PyTuple_GetItem(pair, 1) : nullptr;
            if (!weight) return false;
            if (weight != Py_None && !items.add(journal, slot, journal->weights_ledger, weight, observe_weight(journal->all_weights, weight))) return false;
        }
        return true;
    }
    PyObject *slot, *weight;
    for (Py_ssize_t at = 0; PyDict_Next(weights, &at, &slot, &weight);) {
        const Ref kept_slot = Ref::borrowed(slot), kept = Ref::borrowed(weight);  // another thread may replace it while it is read
        if (weight != Py_None && !items.add(journal, slot, journal->weights_ledger, weight, observe_weight(journal->all_weights, weight))) return false;
    }
    return true;
}

PyObject* py_share(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    const bool fits = num_args == NUM_SHARED && is_ledger(args[0]) && is_ledger(args[1]) && is_weights(args[2]) && PyList_Check(args[3]) &&
                      PyIter_Check(args[4]) && PyList_Check(args[5]);
    if (!fits) return PyErr_Format(PyExc_TypeError, "Journal._share: expected two ledgers, weights, a list, an iterator, a list, ...");
    if (!knows_torch()) return nullptr;
    for (int i = 0; i < NUM_SHARED; i++) put(references(self)[i], args[i]);
    Py_RETURN_NONE;
}

PyObject* add(PyObject* self, PyObject* entry, PyObject* phase, PyObject* weights, PyObject* leaves) {
    const Journal* journal = as_journal(self);
    if (!PyList_Check(leaves)) return PyErr_Format(PyExc_TypeError, "Journal.add: leaves: expected a list");
    for (Py_ssize_t i = 0; i < PyList_Size(leaves); i++) {  // Python reads them all in one launch
        const Ref pair = Ref::borrowed(PyList_GetItem(leaves, i));
        if (PyTuple_Check(pair.get()) && PyTuple_Size(pair.get()) == 2 && is_on_device(PyTuple_GetItem(pair.get(), 1)))
            return PyObject_CallMethod(self, "add_together", "OOOO", entry, phase, weights, leaves);
    }
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
    if (!append(self, entry, phase, items)) return nullptr;
    Py_RETURN_NONE;
}

PyObject* py_add(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != 4) return PyErr_Format(PyExc_TypeError, "add(entry, phase, weights, leaves): got %zd arguments, expected 4", num_args);
    return made(self) ? add(self, args[0], args[1], args[2], args[3]) : nullptr;
}

PyObject* py_tap(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != 2) return PyErr_Format(PyExc_TypeError, "tap(entry, leaves): got %zd arguments, expected 2", num_args);
    const Journal* journal = made(self);
    const Ref weights(journal ? PyObject_GetAttr(args[0], names.weights) : nullptr);
    return weights ? add(self, args[0], journal->forward, weights.get(), args[1]) : nullptr;
}

// A parameter's gradient, as `gradient_of` of probe/optimizers.py; None if there is none.
Ref gradient_of(const Journal* journal, PyObject* parameter) {
    if (is_plain(parameter) && has(parameter, names.is_leaf)) {
        Ref gradient(PyObject_GetAttr(parameter, names.grad));
        if (gradient && gradient.get() != Py_None) return gradient;
        forget();
    }
    return Ref(PyObject_CallFunctionObjArgs(journal->gradient_of, parameter, nullptr));
}

PyObject* py_add_gradients(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != 1 || !PyList_Check(args[0])) return PyErr_Format(PyExc_TypeError, "add_gradients(places): expected a list");
    const Journal* journal = made(self);
    const Ref gradients(journal ? PyList_New(0) : nullptr), found(gradients ? PyList_New(0) : nullptr);
    for (Py_ssize_t i = 0; found && i < PyList_Size(args[0]); i++) {
        const Ref place = Ref::borrowed(PyList_GetItem(args[0], i));
        PyObject* parameter = PyTuple_Check(place.get()) && PyTuple_Size(place.get()) == 3 ? PyTuple_GetItem(place.get(), 2) : nullptr;
        if (!parameter) return PyErr_Format(PyExc_TypeError, "add_gradients(places): expected tuples of entry, slot, parameter");
        if (!gradient_slot(PyTuple_GetItem(place.get(), 0), PyTuple_GetItem(place.get(), 1))) return nullptr;
        const Ref gradient = gradient_of(journal, parameter);
        if (!gradient) return nullptr;
        if (gradient.get() != Py_None && (PyList_Append(gradients.get(), gradient.get()) || PyList_Append(found.get(), place.get()))) return nullptr;
    }
    Ref handles(found ? PyObject_CallMethod(journal->ledger, "observe_many", "O", gradients.get()) : nullptr);
    if (handles && (!PyList_Check(handles.get()) || PyList_Size(handles.get()) != PyList_Size(found.get())))
        return PyErr_Format(PyExc_TypeError, "Ledger.observe_many: expected a handle for each tensor");
    const Ref order(handles ? PyIter_Next(journal->clock) : nullptr);
    const Ref fold(order ? PyTuple_Pack(4, found.get(), handles.get(), journal->call, order.get()) : nullptr);
    return fold && PyList_Append(journal->folded, fold.get()) == 0 ? handles.release() : nullptr;
}

PyObject* py_add_gradient(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args < 3 || num_args > 4)
        return PyErr_Format(PyExc_TypeError, "add_gradient(entry, slot, gradient, shape=None): got %zd arguments", num_args);
    const Journal* journal = made(self);
    if (!journal) return nullptr;
    if (journal->before_gradient && journal->before_gradient != Py_None) {
        const Ref call = Ref::borrowed(journal->before_gradient), done(PyObject_CallNoArgs(call.get()));
        if (!done) return nullptr;
    }
    Items items;
    const int64_t handle = observe_tensor(journal->ledger, args[2], num_args == 4 ? args[3] : Py_None);
    if (!items.add(journal, args[1], journal->ledger, args[2], handle) || !append(self, args[0], journal->phase, items)) return nullptr;
    Py_RETURN_NONE;
}

template <PyObject* Journal::*FIELD>
PyObject* get(PyObject* self, void*) {
    return made(self) ? Ref::borrowed(as_journal(self)->*FIELD ? as_journal(self)->*FIELD : Py_None).release() : nullptr;
}

template <PyObject* Journal::*FIELD>
int set(PyObject* self, PyObject* value, void*) {
    if (!value) {
        PyErr_SetString(PyExc_AttributeError, "Journal: an attribute that can't be deleted");
        return -1;
    }
    put(as_journal(self)->*FIELD, value);
    return 0;
}

PyMethodDef methods[] = {
    method<py_add>("add", "add(entry, phase, weights, leaves): see the class in Python."),
    method<py_tap>("tap", "tap(entry, leaves): see the class in Python."),
    method<py_add_gradient>("add_gradient", "add_gradient(entry, slot, gradient, shape=None): see the class in Python."),
    method<py_add_gradients>("add_gradients", "add_gradients(places): see the class in Python."),
    method<py_share>("_share", "_share(...): all but the call's number, in the struct's order."),
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef properties[] = {
    {"call", get<&Journal::call>, set<&Journal::call>, "the number of the outermost call at work", nullptr},
    {"before_gradient", get<&Journal::before_gradient>, set<&Journal::before_gradient>, "see the class in Python", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

int add_journal(PyObject* module) {
    return add_type<Journal, NUM_SHARED + 2>(module, "Journal", "numscope.summary._native.Journal", methods, properties) ? 0 : -1;
}

}  // namespace numscope
