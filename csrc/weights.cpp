// What summary/parameter_rows.py's Weights does for plain parameters in CPU memory, which have a row already. See the class in Python.
#include <vector>

#include "python.h"

namespace numscope {
namespace {

struct Weights {
    PyObject_HEAD
    PyObject *ledger, *rows, *amax_before;
};
constexpr int NUM_SHARED = 3;

Weights* as_weights(PyObject* self) { return reinterpret_cast<Weights*>(self); }

// Weights that have their parts: not before `_share`, nor after the collector has cleared them.
const Weights* made(PyObject* self) {
    const Weights* weights = as_weights(self);
    if (weights->ledger && weights->rows && weights->amax_before) return weights;
    PyErr_SetString(PyExc_RuntimeError, "Weights: used before it was made, or after it ended");
    return nullptr;
}

int64_t number_at(PyObject* row, PyObject* name) {
    const Ref number(PyObject_GetAttr(row, name));
    return number ? number_of(number.get()) : -2;
}

// The row of a parameter, if it has one and is plain; else null, perhaps with an exception.
Ref row_of(const Weights* weights, PyObject* parameter) {
    if (!is_plain(parameter)) return Ref();
    const Ref key(PyLong_FromVoidPtr(parameter));
    Ref row = Ref::borrowed(key ? PyDict_GetItemWithError(weights->rows, key.get()) : nullptr);
    const Ref reference(row ? PyObject_GetAttr(row.get(), names.parameter) : nullptr);
    return reference && PyWeakref_GetObject(reference.get()) == parameter ? std::move(row) : Ref();
}

bool put_number(PyObject* row, PyObject* name, int64_t value) {
    const Ref number(PyLong_FromLongLong(value));
    return number && PyObject_SetAttr(row, name, number.get()) == 0;
}

// Notes that a parameter is about to be read into its row again, as it is now; `stepped`: and its largest magnitude before the step.
bool note(const Weights* weights, PyObject* row, int64_t handle, PyObject* parameter, const Entry& entry, bool stepped) {
    if (stepped) {
        const double was = row_at(weights->ledger, entry.row_address)->abs_max;
        const Ref key(PyLong_FromLongLong(handle)), amax(PyFloat_FromDouble(was > 0 ? was : 0));
        if (!key || !amax || PyDict_SetItem(weights->amax_before, key.get(), amax.get())) return false;
    }
    return put_number(row, names.version_read, version_of(parameter)) && put_number(row, names.address, entry.address) &&
           put_number(row, names.groups, groups_of(weights->ledger));
}

PyObject* py_reread(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != 3 || !PyList_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "_reread(parameters, stepped, num_threads): got %zd arguments, expected a list first", num_args);
    const Weights* weights = made(self);
    if (!weights) return nullptr;
    const Py_ssize_t count = PyList_Size(args[0]);
    const bool able = !is_left_to_python(), stepped = args[1] == Py_True;
    std::vector<Entry> entries;
    Ref handles(PyList_New(count));
    for (Py_ssize_t i = 0; handles && i < count; i++) {
        const Ref parameter = Ref::borrowed(PyList_GetItem(args[0], i)), row = able ? row_of(weights, parameter.get()) : Ref();
        if (PyErr_Occurred()) return nullptr;
        int64_t handle = row ? number_at(row.get(), names.handle) : -1;
        Entry entry;
        if (handle >= 0) {
            const int done = rewrite(weights->ledger, handle, parameter.get(), entry);
            if (done < 0) return nullptr;
            if (!done) handle = -1;
            else if (!note(weights, row.get(), handle, parameter.get(), entry, stepped)) return nullptr;
        }
        if (handle >= 0) entries.push_back(entry);
        if (!put_handle(handles.get(), i, handle)) return nullptr;
    }
    if (!entries.empty()) read_rows(weights->ledger, entries, int(PyLong_AsLong(args[2])), true);
    return handles.release();
}

PyObject* py_observe(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != 1) return PyErr_Format(PyExc_TypeError, "observe(parameter): got %zd arguments, expected 1", num_args);
    const int64_t handle = observe_weight(self, args[0]);
    return handle == -2 ? nullptr : PyLong_FromLongLong(handle);
}

PyObject* py_share(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != NUM_SHARED || !is_ledger(args[0]) || !PyDict_Check(args[1]) || !PyDict_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "Weights._share: expected a ledger and two dicts");
    if (!knows_torch()) return nullptr;
    for (int i = 0; i < NUM_SHARED; i++) put(references(self)[i], args[i]);
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    method<py_observe>("observe", "observe(parameter): see the class in Python."),
    method<py_reread>("_reread", "_reread(parameters, stepped, num_threads): see the class in Python."),
    method<py_share>("_share", "_share(ledger, rows, amax_before): what it reads into, rows by the parameter's id, magnitudes by handle."),
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef properties[] = {{nullptr, nullptr, nullptr, nullptr, nullptr}};

PyObject* weights_type = nullptr;

}  // namespace

int64_t observe_weight(PyObject* self, PyObject* parameter) {
    const Weights* weights = made(self);
    if (!weights) return -2;
    if (const Ref row = row_of(weights, parameter)) {
        const int64_t version = version_of(parameter);
        const bool same = version >= 0 && number_at(row.get(), names.version_read) == version &&
                          number_at(row.get(), names.address) == address_of(parameter);
        if (same) return number_at(row.get(), names.handle);
    }
    if (PyErr_Occurred()) return -2;
    const Ref handle(PyObject_CallMethod(self, "_observe_any", "O", parameter));
    return handle ? number_of(handle.get()) : -2;
}

bool is_weights(PyObject* object) { return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(weights_type)); }

int add_weights(PyObject* module) {
    weights_type = add_type<Weights, NUM_SHARED>(module, "Weights", "numscope.summary._native.Weights", methods, properties);  // for ever
    return weights_type ? 0 : -1;
}

}  // namespace numscope
