// The base of inspect/tally.py's Tally: what it does for plain tensors of sites that want nothing but a row.
#include "python.h"

namespace numscope {
namespace {

struct Tally {
    PyObject_HEAD
    PyObject* ledger;
    PyObject* parts;  // the list: site and handle of each tensor, one behind the other
    PyObject* plain;  // bytes: for each site, whether a row is all that it wants
};
constexpr int NUM_SHARED = 2;
constexpr Py_ssize_t COMPACT = 65536;  // as in tally.py

Tally* as_tally(PyObject* self) { return reinterpret_cast<Tally*>(self); }

bool is_plain_site(const Tally* tally, int64_t site) {
    return tally->plain && PyBytes_Check(tally->plain) && site >= 0 && site < PyBytes_Size(tally->plain) && PyBytes_AsString(tally->plain)[site];
}

PyObject* py_observe(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args < 2 || num_args > 3) return PyErr_Format(PyExc_TypeError, "observe(site, tensor, shape=None): got %zd arguments", num_args);
    const int64_t site = number_of(args[0]);
    const int done = site == -2 ? -1 : observe_site(self, site, args[1]);
    if (done < 0) return nullptr;
    if (!done) return PyObject_CallMethod(self, "_observe_any", "OOO", args[0], args[1], num_args == 3 ? args[2] : Py_None);
    Py_RETURN_NONE;
}

PyObject* py_share(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != NUM_SHARED || !is_ledger(args[0]) || !PyList_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "Tally._share: expected a ledger and a list");
    if (!knows_torch()) return nullptr;
    for (int i = 0; i < NUM_SHARED; i++) put(references(self)[i], args[i]);
    Py_RETURN_NONE;
}

PyObject* get_plain(PyObject* self, void*) { return Ref::borrowed(as_tally(self)->plain ? as_tally(self)->plain : Py_None).release(); }

int set_plain(PyObject* self, PyObject* value, void*) {
    if (!value || !PyBytes_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "Tally.plain: expected bytes");
        return -1;
    }
    put(as_tally(self)->plain, value);
    return 0;
}

PyMethodDef methods[] = {
    method<py_observe>("observe", "observe(site, tensor, shape=None): see the class in Python."),
    method<py_share>("_share", "_share(ledger, parts): what it observes with, and appends to."),
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef properties[] = {
    {"plain", get_plain, set_plain, "see the class in Python", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyObject* tally_type = nullptr;

}  // namespace

bool is_tally(PyObject* object) { return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(tally_type)); }

int observe_site(PyObject* self, int64_t site, PyObject* tensor) {
    const Tally* tally = as_tally(self);
    if (!tally->ledger || !tally->parts || !is_plain_site(tally, site) || !is_plain(tensor)) return 0;
    if (is_held(tally->ledger) || PyList_Size(tally->parts) >= 2 * COMPACT) return 0;
    const int64_t handle = observe_tensor(tally->ledger, tensor, Py_None);
    if (handle < 0) return handle == -2 ? -1 : 0;
    const Ref number(PyLong_FromLongLong(site)), place(PyLong_FromLongLong(handle));  // from here on nothing else runs
    return number && place && !PyList_Append(tally->parts, number.get()) && !PyList_Append(tally->parts, place.get()) ? 1 : -1;
}

int add_tally(PyObject* module) {
    tally_type = add_type<Tally, NUM_SHARED + 1>(module, "Tally", "numscope.summary._native.Tally", methods, properties);  // for ever
    return tally_type ? 0 : -1;
}

}  // namespace numscope
