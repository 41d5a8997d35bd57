// The base of replay/function_probe.py's FunctionProbe: runs a function of torch, and notes it if it makes a floating-point tensor.
#include "python.h"

namespace numscope {
namespace {

struct Functions {
    PyObject_HEAD
    PyObject* append;                // the log's method
    PyObject *state, *coming;        // the class State, the writers of one whose record is in the log
    PyObject *set_item, *get_item;   // of tensors
    PyObject* put;                   // FunctionProbe._put, which makes a record of what is noted
    int64_t most;                    // elements of a result that is kept until the step is over
    bool is_on;
};
constexpr int NUM_SHARED = 6;  // references

Functions* as_functions(PyObject* self) { return reinterpret_cast<Functions*>(self); }

bool is_floating(PyObject* object) { return is_tensor(object) && says(torch.is_floating_point, object); }

bool push(PyObject* list, PyObject* first, PyObject* second, PyObject* third) {
    return first && second && third && PyList_Append(list, first) == 0 && PyList_Append(list, second) == 0 && PyList_Append(list, third) == 0;
}

// Code and offset of each frame from `frame` out to a script's outermost. See `walk` of replay/stack.py.
Ref walk(Ref frame) {
    Ref found(PyList_New(0));
    while (found && frame && frame.get() != Py_None) {
        const Ref code(PyObject_GetAttr(frame.get(), names.f_code)), offset(PyObject_GetAttr(frame.get(), names.f_lasti));
        const Ref name(code ? PyObject_GetAttr(code.get(), names.co_name) : nullptr);
        if (!name || !offset || PyList_Append(found.get(), code.get()) || PyList_Append(found.get(), offset.get())) return Ref();
        if (PyUnicode_Compare(name.get(), names.module) == 0) {
            const Ref file(PyObject_GetAttr(code.get(), names.co_filename));
            if (!file) return Ref();
            const bool is_script = PyUnicode_ReadChar(file.get(), 0) != '<';  // a notebook's cells have callers, a script has none
            PyErr_Clear();  // an empty name
            if (is_script) break;
        }
        frame = Ref(PyObject_GetAttr(frame.get(), names.f_back));
    }
    return !found || PyErr_Occurred() ? Ref() : Ref(PyList_AsTuple(found.get()));
}

// A tuple of some objects and of all that the lists hold.
Ref joined(PyObject* const* head, Py_ssize_t num_head, std::initializer_list<PyObject*> lists) {
    Py_ssize_t size = num_head, at = 0;
    for (PyObject* list : lists) size += PyList_Size(list);
    Ref tuple(PyTuple_New(size));
    const auto add = [&](PyObject* one) { PyTuple_SetItem(tuple.get(), at++, Ref::borrowed(one).release()); };
    for (Py_ssize_t i = 0; tuple && i < num_head; i++) add(head[i]);
    for (PyObject* list : lists)
        for (Py_ssize_t i = 0; tuple && i < PyList_Size(list); i++) add(PyList_GetItem(list, i));
    return tuple;
}

class Note {
public:
    Note(PyObject* self, PyObject* results)
        : self_(self), functions_(as_functions(self)), results_(results), given_(PyList_New(0)), made_(PyList_New(0)), parts_(PyList_New(0)) {
        const Ref tape(PyObject_GetAttr(self, names.tape));
        if (tape) odd_ = Ref(PyObject_GetAttr(tape.get(), names.odd));
    }

    bool take(PyObject* args, PyObject* kwargs) {
        if (!given_ || !made_ || !parts_ || !odd_) return false;
        const Py_ssize_t num_args = PyTuple_Size(args);
        for (Py_ssize_t i = 0; i < num_args; i++)
            if (!take_argument(i, PyTuple_GetItem(args, i))) return false;
        PyObject *key, *value;
        Py_ssize_t place = num_args;
        for (Py_ssize_t at = 0; kwargs && PyDict_Next(kwargs, &at, &key, &value); place++)
            if (!take_argument(place, value)) return false;
        for (Py_ssize_t i = 0; i < PyTuple_Size(results_); i++)
            if (!take_result(PyTuple_GetItem(results_, i), num_args ? PyTuple_GetItem(args, 0) : nullptr)) return false;
        return true;
    }

    // Puts what was taken on the log.
    bool log(PyObject* function, PyObject* args, PyObject* kwargs, PyObject* first) {
        const Ref num_args(PyLong_FromSsize_t(PyTuple_Size(args))), names_given(kwargs ? PyDict_Keys(kwargs) : PyList_New(0));
        const Ref keywords(names_given ? PyList_AsTuple(names_given.get()) : nullptr);
        const Ref last(PyObject_CallNoArgs(torch.sequence_nr));
        const Ref walked = walk(Ref::borrowed(reinterpret_cast<PyObject*>(PyEval_GetFrame())));  // C has no frame: the caller's
        const Ref num_given(PyLong_FromSsize_t(PyList_Size(given_.get()))), num_made(PyLong_FromSsize_t(PyList_Size(made_.get())));
        if (!num_args || !keywords || !last || !walked || !num_given || !num_made) return false;
        // One object for the garbage collector: thousands are kept until the step is over.
        PyObject* const head[] = {functions_->put, self_, function, num_args.get(), keywords.get(), first, last.get(), walked.get(), num_given.get(), num_made.get()};
        const Ref note = joined(head, sizeof head / sizeof *head, {given_.get(), made_.get(), parts_.get()});
        const Ref done(note ? PyObject_CallFunctionObjArgs(functions_->append, note.get(), nullptr) : nullptr);
        const Ref flushed(done && at_once_ ? PyObject_CallMethod(self_, "_flush", nullptr) : Ref::borrowed(done.get()).release());
        return bool(flushed);
    }

private:
    bool take_argument(Py_ssize_t place, PyObject* value) {
        if (!PyTuple_Check(value) && !PyList_Check(value)) return take_item(place, value);
        const Ref items(PySequence_Tuple(value));
        for (Py_ssize_t i = 0; items && i < PyTuple_Size(items.get()); i++)
            if (!take_item(place, PyTuple_GetItem(items.get(), i))) return false;
        return bool(items);
    }

    // Four objects an argument: its place, its state or value, dtype, shape.
    bool take_item(Py_ssize_t place, PyObject* item) {
        const bool number = PyLong_Check(item) || PyFloat_Check(item);
        if (!number && !is_tensor(item)) return true;
        const Ref at(PyLong_FromSsize_t(place));
        if (number) {
            const Ref none(PyTuple_New(0));
            return at && none && push(given_.get(), at.get(), item, Py_None) && PyList_Append(given_.get(), none.get()) == 0;
        }
        const Ref state = state_of(item), dtype(state ? PyObject_GetAttr(item, names.dtype) : nullptr);
        const Ref size(dtype ? PyObject_GetAttr(item, names.shape) : nullptr);
        Ref shape(size ? PySequence_Tuple(size.get()) : nullptr);  // the garbage collector forgets plain tuples of numbers
        if (dtype && !shape) {  // a nested tensor has none
            forget();
            shape = Ref(PyTuple_New(0));
        }
        return at && shape && push(given_.get(), at.get(), state.get(), dtype.get()) && PyList_Append(given_.get(), shape.get()) == 0;
    }

    // In place: what a tensor holds now was not what went in, so it is not read.
    Ref state_of(PyObject* tensor) {
        bool written = false;
        for (Py_ssize_t i = 0; i < PyTuple_Size(results_); i++) written = written || PyTuple_GetItem(results_, i) == tensor;
        const Ref key(PyLong_FromVoidPtr(tensor));
        PyObject* known = key ? PyDict_GetItemWithError(odd_.get(), key.get()) : nullptr;
        if (known && PyWeakref_GetObject(PyTuple_GetItem(known, 0)) == tensor) {
            Ref state = Ref::borrowed(PyTuple_GetItem(known, 1));
            const Ref row(PyObject_GetAttr(state.get(), names.row)), writers(PyObject_GetAttr(state.get(), names.writers));
            if (!row || !writers) return Ref();
            if (written || writers.get() == functions_->coming || PyLong_AsLongLong(row.get()) != -1) return state;
        }
        return Ref(PyObject_CallMethod(self_, written ? "_known" : "_state_of", "O", tensor));
    }

    // Three objects a result: itself without its graph, its version, its state.
    bool take_result(PyObject* tensor, PyObject* self_argument) {
        if (!is_floating(tensor)) return true;
        const Ref unread(PyLong_FromLong(-1)), key(PyLong_FromVoidPtr(tensor)), reference(PyWeakref_NewRef(tensor, nullptr));
        const Ref state(unread ? PyObject_CallFunctionObjArgs(functions_->state, unread.get(), functions_->coming, nullptr) : nullptr);
        const Ref known(reference && state ? PyTuple_Pack(2, reference.get(), state.get()) : nullptr);
        if (!known || !key || PyDict_SetItem(odd_.get(), key.get(), known.get())) return false;
        at_once_ = at_once_ || count_of(torch.numel, tensor) > functions_->most || says(torch.is_inference, tensor);
        const Ref detached(PyObject_CallFunctionObjArgs(torch.detach, tensor, nullptr));
        const Ref version(PyLong_FromLongLong(at_once_ ? -1 : version_of(tensor)));
        if (!push(made_.get(), detached.get(), version.get(), state.get())) return false;
        if (tensor != self_argument) return true;
        const Ref base(PyObject_GetAttr(tensor, names.base));
        if (!base || base.get() == Py_None) return bool(base);
        const Ref begun(PyObject_CallMethod(self_, "_begin_part", "O", base.get()));
        const Ref both(begun ? PySequence_Tuple(begun.get()) : nullptr);
        return both && PyTuple_Size(both.get()) == 2 && PyList_Append(parts_.get(), PyTuple_GetItem(both.get(), 0)) == 0 && PyList_Append(parts_.get(), PyTuple_GetItem(both.get(), 1)) == 0;
    }

    PyObject* self_;
    const Functions* functions_;
    PyObject* results_;
    Ref given_, made_, parts_, odd_;  // odd_: the tape's states of tensors by id
    bool at_once_ = false;
};

bool is_sequence(PyObject* object) { return PyTuple_Check(object) || PyList_Check(object); }

bool note(PyObject* self, PyObject* function, PyObject* args, PyObject* kwargs, PyObject* result, PyObject* first) {
    const Functions* functions = as_functions(self);
    if (function == functions->set_item)
        return bool(Ref(PyObject_CallMethod(self, "_note_part", "OO", PyTuple_GetItem(args, 0), PyTuple_GetItem(args, 2))));
    if (function == functions->get_item) {
        const Ref taken(PyObject_CallMethod(self, "_take_part", "OO", PyTuple_GetItem(args, 0), result));
        if (!taken || taken.get() == Py_True) return bool(taken);
    }
    const Ref results(is_sequence(result) ? PySequence_Tuple(result) : PyTuple_Pack(1, result));
    if (!results) return false;
    Note one(self, results.get());
    return one.take(args, kwargs) && one.log(function, args, kwargs, first);
}

// What shows whether a function made a floating-point tensor: its result, or the first one of several.
Ref first_of(const Functions* functions, PyObject* function, PyObject* args, PyObject* result) {
    if (function == functions->set_item) return Ref::borrowed(PyTuple_Size(args) > 2 ? PyTuple_GetItem(args, 0) : Py_None);
    if (!is_sequence(result)) return Ref::borrowed(result);
    Ref first(PySequence_Size(result) > 0 ? PySequence_GetItem(result, 0) : nullptr);
    forget();
    return first ? std::move(first) : Ref::borrowed(Py_None);
}

// The first argument's version; -1 for none.
int64_t version_of_first(PyObject* args) {
    PyObject* const first = PyTuple_Size(args) ? PyTuple_GetItem(args, 0) : Py_None;
    return is_tensor(first) ? version_of(first) : -1;
}

// Calls the function as the script did. An error of ours ends the notes, see `caught` in Python.
PyObject* py_call(PyObject* self, PyObject* const* given, Py_ssize_t num_given) {
    if (num_given < 3 || num_given > 4 || !PyTuple_Check(given[2]))
        return PyErr_Format(PyExc_TypeError, "call(function, types, args, kwargs=None): got %zd arguments", num_given);
    PyObject *function = given[0], *args = given[2], *kwargs = num_given == 4 && given[3] != Py_None ? given[3] : nullptr;
    const Functions* functions = as_functions(self);
    if (!functions->is_on || !functions->append || is_traced()) return PyObject_Call(function, args, kwargs);
    const Ref first(PyObject_CallNoArgs(torch.sequence_nr));
    const int64_t version = version_of_first(args);
    Ref result(first ? PyObject_Call(function, args, kwargs) : nullptr);
    if (!result || !functions->is_on) return result.release();
    if (version >= 0 && result.get() == PyTuple_GetItem(args, 0) && version_of_first(args) == version) return result.release();  // `to` of what is so already
    const Ref one = first_of(functions, function, args, result.get());
    const bool made = reinterpret_cast<PyObject*>(Py_TYPE(one.get())) == torch.tensor && says(torch.is_floating_point, one.get());
    if (!made || note(self, function, args, kwargs, result.get(), first.get())) return result.release();
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;  // an interrupt
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    const Ref kept_type(type), kept(value), kept_trace(trace);
    if (trace) PyException_SetTraceback(kept.get(), trace);
    const Ref done(PyObject_CallMethod(self, "caught", "O", kept.get()));  // raises what is the script's
    return done ? result.release() : nullptr;
}

PyObject* py_share(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != NUM_SHARED + 1) return PyErr_Format(PyExc_TypeError, "_share(...): got %zd arguments, expected %d", num_args, NUM_SHARED + 1);
    const int64_t most = number_of(args[NUM_SHARED]);
    if (most == -2 || !knows_torch()) return nullptr;
    for (int i = 0; i < NUM_SHARED; i++) put(references(self)[i], args[i]);
    as_functions(self)->most = most;
    Py_RETURN_NONE;
}

PyObject* get_is_on(PyObject* self, void*) { return PyBool_FromLong(as_functions(self)->is_on); }

int set_is_on(PyObject* self, PyObject* value, void*) {
    as_functions(self)->is_on = value == Py_True;
    return 0;
}

PyMethodDef methods[] = {
    method<py_call>("call", "call(function, types, args, kwargs=None): its result, with a note of it."),
    method<py_share>("_share", "_share(...): the fields in the struct's order."),
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef properties[] = {
    {"is_on", get_is_on, set_is_on, "whether functions are noted", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

int add_functions(PyObject* module) {
    return add_type<Functions, NUM_SHARED>(module, "FunctionProbe", "numscope.summary._native.FunctionProbe", methods, properties) ? 0 : -1;
}

}  // namespace numscope
