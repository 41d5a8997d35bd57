// The base of summary/ledger.py's Ledger: what it does for most tensors, which are small and lie in CPU memory.
//
// A tensor that was seen and has not changed costs 0.2 µs, another one 1.2 µs. All else is left to `_observe_any` of the Python class.
#include <vector>

#include "python.h"

namespace numscope {
namespace {

struct Ledger {
    PyObject_HEAD
    PyObject *seen, *meta;              // the class's dict and list: handle and version of a tensor by its id; what is known of a handle
    PyObject* lock;                     // an RLock
    PyObject *block, *handles;          // of the block in CPU memory: itself, and its list of handles by row
    int64_t address, capacity, groups;  // of that block, and the fields to compute
    int64_t held;                       // above 0: a thread has the lock in Python, and adds rows or moves them
};
constexpr int NUM_REFERENCES = 5;

Ledger* as_ledger(PyObject* self) { return reinterpret_cast<Ledger*>(self); }

// A ledger that has its parts: not before `_share`, nor after the collector has cleared it.
Ledger* made(PyObject* self) {
    Ledger* ledger = as_ledger(self);
    if (ledger->seen && ledger->meta && ledger->lock) return ledger;
    PyErr_SetString(PyExc_RuntimeError, "Ledger: used before it was made, or after it ended");
    return nullptr;
}

// The handle of a tensor that has not changed since it was seen; -1 if it is to be read.
int64_t known(const Ledger* ledger, PyObject* key, PyObject* tensor, int64_t version) {
    PyObject* item = version < 0 ? nullptr : PyDict_GetItemWithError(ledger->seen, key);
    if (!item || PyWeakref_GetObject(PyTuple_GetItem(item, 0)) != tensor) return -1;
    return PyLong_AsLongLong(PyTuple_GetItem(item, 1)) == version ? PyLong_AsLongLong(PyTuple_GetItem(item, 2)) : -1;
}

// What `_meta` holds of a handle: block, row, dtype, shape.
Ref description(const Ledger* ledger, PyObject* row, int64_t dtype, PyObject* tensor, PyObject* shape) {
    const Ref size = shape == Py_None ? shape_of(tensor) : Ref::borrowed(shape);
    return Ref(size && row ? PyTuple_Pack(4, ledger->block, row, torch.dtypes[dtype], size.get()) : nullptr);
}

// A row for a tensor that the kernel can read as it is, which is put into `entry` and still to be read; in place of the row's address its
// number, since rows may move until then. Returns its handle, -1 if it is for Python, or -2 with an exception.
//
// Each object that is made may have the collector run, and with it finalizers and other threads, which may observe too or begin a step.
// So the row is taken once all are made, if it is still the next one; from there on until it is read nothing else runs. `most_held`: 1 for
// who has the lock.
int64_t place(Ledger* ledger, PyObject* key, PyObject* tensor, int64_t version, PyObject* shape, int64_t below, int most_held, Entry& entry) {
    if (ledger->held > most_held || !ledger->block || !readable(tensor, entry) || entry.numel >= below) return -1;
    const Py_ssize_t row = PyList_Size(ledger->handles), handle = PyList_Size(ledger->meta);
    if (row >= ledger->capacity) return -1;
    const Ref row_number(PyLong_FromSsize_t(row)), number(PyLong_FromSsize_t(handle));
    if (!number) return -2;
    const Ref known = description(ledger, row_number.get(), entry.dtype, tensor, shape);
    if (!known) {  // a nested tensor has no shape
        forget();
        return -1;
    }
    const Ref reference(PyWeakref_NewRef(tensor, nullptr)), stamp(PyLong_FromLongLong(version));
    const Ref item(reference && stamp ? PyTuple_Pack(3, reference.get(), stamp.get(), number.get()) : nullptr);
    if (!item) return -2;
    if (ledger->held > most_held || PyList_Size(ledger->handles) != row || PyList_Size(ledger->meta) != handle || row >= ledger->capacity) return -1;
    entry.row_address = row;
    const bool done = PyList_Append(ledger->meta, known.get()) == 0 && PyList_Append(ledger->handles, number.get()) == 0 &&
                      PyDict_SetItem(ledger->seen, key, item.get()) == 0;
    return done ? handle : -2;
}

// Where a row is, by its number.
int64_t address_of(const Ledger* ledger, int64_t row) { return ledger->address + row * int64_t(sizeof(Row)); }

PyObject* py_observe_batch(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != 2 || !PyList_Check(args[0])) return PyErr_Format(PyExc_TypeError, "_observe_batch(list, num_threads): got %zd arguments", num_args);
    Ledger* ledger = made(self);
    if (!ledger) return nullptr;
    const Py_ssize_t count = PyList_Size(args[0]);
    const bool able = !is_left_to_python();
    std::vector<Entry> entries;
    Ref handles(PyList_New(count));
    for (Py_ssize_t i = 0; handles && i < count; i++) {
        PyObject* tensor = PyList_GetItem(args[0], i);
        int64_t handle = -1;
        if (able && is_plain(tensor)) {
            const Ref key(PyLong_FromVoidPtr(tensor));
            const int64_t version = version_of(tensor);
            Entry entry;
            handle = key ? known(ledger, key.get(), tensor, version) : -2;
            if (handle == -1) {
                handle = place(ledger, key.get(), tensor, version, Py_None, INT64_MAX, 1, entry);
                if (handle >= 0) entries.push_back(entry);
            }
        }
        if (!put_handle(handles.get(), i, handle)) return nullptr;
    }
    if (!entries.empty()) read_rows(self, entries, int(PyLong_AsLong(args[1])), false);
    return handles.release();
}

PyObject* py_observe(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args < 1 || num_args > 2) return PyErr_Format(PyExc_TypeError, "observe(tensor, shape=None): got %zd arguments", num_args);
    const int64_t handle = observe_tensor(self, args[0], num_args == 2 ? args[1] : Py_None);
    return handle == -2 ? nullptr : PyLong_FromLongLong(handle);
}

PyObject* py_share(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != 3 || !PyDict_Check(args[0]) || !PyList_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "_share(seen, meta, lock): expected a dict, a list and an RLock");
    if (!knows_torch()) return nullptr;
    put(as_ledger(self)->seen, args[0]);
    put(as_ledger(self)->meta, args[1]);
    put(as_ledger(self)->lock, args[2]);
    Py_RETURN_NONE;
}

// In Python an interrupt may come between the lock's taking and the counting, and the lock would never be given back.
PyObject* py_enter(PyObject* self, PyObject* const*, Py_ssize_t) {
    Ledger* ledger = made(self);
    if (!ledger || !Ref(PyObject_CallMethod(ledger->lock, "acquire", nullptr))) return nullptr;
    ledger->held++;
    Py_RETURN_NONE;
}

PyObject* py_exit(PyObject* self, PyObject* const*, Py_ssize_t) {
    Ledger* ledger = made(self);
    if (!ledger) return nullptr;
    PyObject* done = PyObject_CallMethod(ledger->lock, "release", nullptr);
    if (done) ledger->held--;
    return done;
}

PyObject* py_point(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != 4 || !PyList_Check(args[1]))
        return PyErr_Format(PyExc_TypeError, "_point(block, handles, address, capacity): got %zd arguments, expected 4", num_args);
    Ledger* ledger = as_ledger(self);
    put(ledger->block, args[0]);
    put(ledger->handles, args[1]);
    ledger->address = PyLong_AsLongLong(args[2]);
    ledger->capacity = PyLong_AsLongLong(args[3]);
    if (PyErr_Occurred()) return nullptr;
    Py_RETURN_NONE;
}

PyObject* get_groups(PyObject* self, void*) { return PyLong_FromLongLong(as_ledger(self)->groups); }

int set_groups(PyObject* self, PyObject* value, void*) {
    const int64_t groups = value ? PyLong_AsLongLong(value) : -1;
    if (groups == -1) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "groups: got -1 or nothing, expected fields");
        return -1;
    }
    as_ledger(self)->groups = groups;
    return 0;
}

PyMethodDef methods[] = {
    method<py_observe>("observe", "observe(tensor, shape=None): see the class in Python."),
    method<py_observe_batch>("_observe_batch", "_observe_batch(tensors, num_threads): the handle of each, or None where it is for Python."),
    method<py_share>("_share", "_share(seen, meta, lock): what is known of tensors by their ids, and of handles; what `with` takes."),
    method<py_enter>("__enter__", "Takes the lock."),
    method<py_exit>("__exit__", "Gives the lock back."),
    method<py_point>("_point", "_point(block, handles, address, capacity): where the rows in CPU memory are."),
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef properties[] = {
    {"groups", get_groups, set_groups, "the fields to compute", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyObject* ledger_type = nullptr;

}  // namespace

int64_t observe_tensor(PyObject* self, PyObject* tensor, PyObject* shape) {
    Ledger* ledger = made(self);
    if (!ledger) return -2;
    if (is_plain(tensor)) {
        const Ref key(PyLong_FromVoidPtr(tensor));
        if (!key) return -2;
        const int64_t version = version_of(tensor);
        int64_t handle = known(ledger, key.get(), tensor, version);
        if (handle == -1 && !is_left_to_python()) {
            Entry entry;
            handle = place(ledger, key.get(), tensor, version, shape, RELEASE_NUMEL, 0, entry);
            if (handle >= 0) {
                entry.row_address = address_of(ledger, entry.row_address);
                observe(&entry, 1, int(ledger->groups), 1);
            }
        }
        if (handle != -1) return handle;
    }
    const Ref found(PyObject_CallMethod(self, "_observe_any", "OO", tensor, shape));
    return found ? number_of(found.get()) : -2;
}

int rewrite(PyObject* self, int64_t handle, PyObject* tensor, Entry& entry) {
    const Ledger* ledger = made(self);
    const Ref meta = Ref::borrowed(ledger ? PyList_GetItem(ledger->meta, Py_ssize_t(handle)) : nullptr);
    if (!meta) return -1;
    PyObject* row = PyTuple_GetItem(meta.get(), 1);
    if (!row || PyTuple_GetItem(meta.get(), 0) != ledger->block || !readable(tensor, entry)) return row ? 0 : -1;
    entry.row_address = PyLong_AsLongLong(row);
    Ref fresh = description(ledger, row, entry.dtype, tensor, Py_None);
    if (!fresh) {
        forget();
        return 0;
    }
    return PyList_SetItem(ledger->meta, Py_ssize_t(handle), fresh.release()) ? -1 : 1;
}

const Row* row_at(PyObject* self, int64_t row) { return reinterpret_cast<const Row*>(address_of(as_ledger(self), row)); }

bool is_bad_row(PyObject* self, int64_t handle) {
    const Ledger* ledger = as_ledger(self);
    if (handle < 0) return false;
    PyObject* const meta = PyList_GetItem(ledger->meta, Py_ssize_t(handle));
    if (!meta || PyTuple_GetItem(meta, 0) != ledger->block) {
        forget();
        return true;
    }
    const Row* row = row_at(self, PyLong_AsLongLong(PyTuple_GetItem(meta, 1)));
    return row->num_nan != 0 || row->num_pos_inf != 0 || row->num_neg_inf != 0;
}

bool is_held(PyObject* self) { return as_ledger(self)->held > 0; }

int64_t groups_of(PyObject* self) { return as_ledger(self)->groups; }

void read_rows(PyObject* self, std::vector<Entry>& entries, int num_threads, bool again) {
    const Ledger* ledger = as_ledger(self);
    for (Entry& entry : entries) {
        entry.row_address = address_of(ledger, entry.row_address);
        if (again) reset(*reinterpret_cast<Row*>(entry.row_address));
    }
    const int64_t count = int64_t(entries.size()), numel = total_numel(entries.data(), count);
    PyThreadState* state = numel < RELEASE_NUMEL ? nullptr : PyEval_SaveThread();
    observe(entries.data(), count, int(ledger->groups), num_threads);
    if (state) PyEval_RestoreThread(state);
}

bool put_handle(PyObject* list, Py_ssize_t at, int64_t handle) {
    if (handle == -2) return false;
    return PyList_SetItem(list, at, handle < 0 ? Ref::borrowed(Py_None).release() : PyLong_FromLongLong(handle)) == 0;
}

bool is_ledger(PyObject* object) { return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(ledger_type)); }

int add_ledger(PyObject* module) {
    ledger_type = add_type<Ledger, NUM_REFERENCES>(module, "Ledger", "numscope.summary._native.Ledger", methods, properties);  // for ever
    return ledger_type ? 0 : -1;
}

}  // namespace numscope
