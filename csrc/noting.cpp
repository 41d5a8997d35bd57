// The bases of replay/noting.py's probes: they run an operation, or a function of torch, and note what a record of it is made of.
#include <unordered_map>

#include "log.h"

namespace numscope {
namespace {

struct Noting {
    PyObject_HEAD
    PyObject* log;    // gets the notes
    PyObject* plans;  // by operator: flags of it and its arguments, and their names; None where Python records it
    PyObject* names;  // by a tensor's id: a weak reference to it, and its name
    PyObject* put;    // what makes a record of a note
    PyObject* maker;  // and the probe that makes it; None: this one
    int64_t num, most;  // operations noted or recorded, and at which number the probe ends
    int care;  // so many operations after one that needs care are called with care too
    bool is_on;
};
constexpr int NUM_REFERENCES = 5;
constexpr int VIEW = 1, BLANK = 2, NEEDS_CARE = 4, WRITTEN = 1, UNREAD = 2;  // as in Python
constexpr int CAREFUL = 3;  // a product has as many operations after its first one
constexpr size_t MOST_CODES = 4096;

Noting* as_noting(PyObject* self) { return reinterpret_cast<Noting*>(self); }
PyObject* maker_of(PyObject* self) { return as_noting(self)->maker == Py_None ? self : as_noting(self)->maker; }

enum class Taken { YES, NO, FAILED };  // NO: it is for Python; FAILED: with an exception

Taken failed_or_no() {
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return Taken::FAILED;  // an interrupt
    PyErr_Clear();
    return Taken::NO;
}

// Whether a code object is a script's outermost. Asked of each frame of each note, so the answers are kept, and the code objects with them.
bool is_outermost(PyObject* code) {
    static std::unordered_map<PyObject*, bool> known;
    const auto found = known.find(code);
    if (found != known.end()) return found->second;
    const Ref name(PyObject_GetAttr(code, names.co_name)), file(PyObject_GetAttr(code, names.co_filename));
    bool is = name && file && PyUnicode_Compare(name.get(), names.module) == 0;
    is = is && PyUnicode_GetLength(file.get()) > 0 && PyUnicode_ReadChar(file.get(), 0) != '<';  // a notebook's cells have callers, a script has none
    forget();
    std::unordered_map<PyObject*, bool> gone;  // as they go, code may run that asks here
    if (known.size() >= MOST_CODES) gone.swap(known);
    if (known.emplace(code, is).second) Py_INCREF(code);
    for (const auto& one : gone) Py_DECREF(one.first);
    return is;
}

// The frames from the caller's out to a script's outermost. False with an exception.
bool walk(Note& note) {
    Ref frame = Ref::borrowed(reinterpret_cast<PyObject*>(PyEval_GetFrame()));  // C has none of its own
    while (frame && frame.get() != Py_None) {
        Ref code(reinterpret_cast<PyObject*>(PyFrame_GetCode(reinterpret_cast<PyFrameObject*>(frame.get()))));
        const Ref offset(PyObject_GetAttr(frame.get(), names.f_lasti));
        if (!offset) return false;
        const bool is_last = is_outermost(code.get());
        note.codes.push_back(std::move(code));
        note.offsets.push_back(number_of(offset.get()));
        if (is_last) break;
        frame = Ref(PyObject_GetAttr(frame.get(), names.f_back));
    }
    return !PyErr_Occurred();
}

// Writes a note of an operation.
class Writer {
public:
    Writer(PyObject* self, PyObject* ledger, Log& log) : self_(self), ledger_(ledger), log_(log), has_grad_(is_grad_enabled()) {}

    Note note;

    // The arguments before the call.
    Taken take(PyObject* plan, PyObject* args, PyObject* kwargs) {
        const char* flags = PyBytes_AsString(PyTuple_GetItem(plan, 0));
        const Py_ssize_t num_flags = PyBytes_Size(PyTuple_GetItem(plan, 0)) - 1;
        note.num_args = PyTuple_Size(args);
        for (Py_ssize_t i = 0; i < note.num_args; i++) {
            const Taken taken = argument(PyTuple_GetItem(args, i), i < num_flags ? flags[i + 1] : 0);
            if (taken != Taken::YES) return taken;
        }
        PyObject *key, *value;
        for (Py_ssize_t at = 0; kwargs && PyDict_Next(kwargs, &at, &key, &value);) {
            const Py_ssize_t place = PySequence_Index(PyTuple_GetItem(plan, 1), key);
            if (place < 0) return failed_or_no();
            const Taken taken = argument(value, flags[place + 1]);
            if (taken != Taken::YES) return taken;
        }
        const Ref keys(kwargs ? PyDict_Keys(kwargs) : PyList_New(0));
        note.keywords = Ref(keys ? PyList_AsTuple(keys.get()) : nullptr);
        num_objects_ = note.objects.size();
        num_numbers_ = note.numbers.size();
        return note.keywords && walk(note) ? Taken::YES : Taken::FAILED;
    }

    // The arguments after the call. What was written is not what went in, so it is not read.
    Taken take_late(PyObject* args, PyObject* kwargs, const std::vector<bool>& is_written) {
        is_late_ = true;
        note.num_args = PyTuple_Size(args);
        PyObject *key, *object;
        Py_ssize_t i = 0, at = 0;
        for (; i < note.num_args; i++) {
            const Taken taken = value(PyTuple_GetItem(args, i), !is_written[i]);
            if (taken != Taken::YES) return taken;
        }
        for (; kwargs && PyDict_Next(kwargs, &at, &key, &object); i++) {
            const Taken taken = value(object, !is_written[i]);
            if (taken != Taken::YES) return taken;
        }
        const Ref keys(kwargs ? PyDict_Keys(kwargs) : PyList_New(0));
        note.keywords = Ref(keys ? PyList_AsTuple(keys.get()) : nullptr);
        into_ = &note.made;
        return note.keywords && walk(note) ? Taken::YES : Taken::FAILED;
    }

    // An argument that was written: its place, and what it is now.
    Taken written(Py_ssize_t place, PyObject* object) {
        const Ref number(PyLong_FromSsize_t(place));
        return number && value(number.get(), false) == Taken::YES ? value(object, true) : Taken::FAILED;
    }

    Taken value(PyObject* object, bool is_read) {
        if (is_plain(object)) return tensor(object, is_read);
        return PyList_Check(object) || PyTuple_Check(object) ? list(object, is_read) : other(object);
    }

    // What the operation has written and made.
    Taken made(PyObject* result, bool is_read) {
        into_ = &note.made;
        is_after_ = is_written_ = true;
        for (const Ref& one : written_) {
            const Taken taken = value(one.get(), true);
            if (taken != Taken::YES) return taken;
        }
        is_written_ = false;
        return value(result, is_read);
    }

    // Leaves what went in.
    void forget_made() {
        note.made.clear();
        note.objects.resize(num_objects_);
        note.numbers.resize(num_numbers_);
    }

private:
    Taken argument(PyObject* object, int flags) {
        const Taken taken = value(object, !(flags & UNREAD));
        if (flags & WRITTEN) written_.push_back(Ref::borrowed(object));
        return taken;
    }

    Taken list(PyObject* object, bool is_read) {
        const Ref items(PySequence_Tuple(object));
        if (!items) return Taken::FAILED;
        bool has_tensors = false;
        for (Py_ssize_t i = 0; i < PyTuple_Size(items.get()); i++) {
            PyObject* item = PyTuple_GetItem(items.get(), i);
            if (PyList_Check(item) || PyTuple_Check(item)) return Taken::NO;
            has_tensors = has_tensors || is_tensor(item);
        }
        if (!has_tensors) return other(object);
        into_->push_back('[');
        for (Py_ssize_t i = 0; i < PyTuple_Size(items.get()); i++) {
            const Taken taken = value(PyTuple_GetItem(items.get(), i), is_read);
            if (taken != Taken::YES) return taken;
        }
        into_->push_back(']');
        return Taken::YES;
    }

    Taken other(PyObject* object) {
        if (is_tensor(object)) return Taken::NO;  // of a subclass
        into_->push_back('v');
        note.objects.push_back(Ref::borrowed(object));
        return Taken::YES;
    }

    Taken tensor(PyObject* object, bool is_read) {
        Place place;
        if (!place_of(object, place)) return Taken::NO;
        const Ref storage(PyObject_CallFunctionObjArgs(torch.untyped_storage, object, nullptr));
        Ref reference(storage ? PyWeakref_NewRef(storage.get(), nullptr) : nullptr), dtype(reference ? PyObject_GetAttr(object, names.dtype) : nullptr);
        if (!dtype) return failed_or_no();
        int64_t row = place.is_floating ? NOT_READ : UNOBSERVED;
        for (const Ref& one : written_) is_read = is_read && (!is_after_ || is_written_ || one.get() != object);  // it has been read just now
        if (is_read && place.is_floating) {
            row = log_.read(ledger_, object, place, reference.get(), is_written_);
            if (row == -2) return Taken::FAILED;
            const bool is_bad = log_.is_bad(ledger_, row);
            if (is_bad && !is_after_ && !is_late_) return Taken::NO;
            log_.has_bad = log_.has_bad || is_bad;
        }
        note.differentiable = note.differentiable || (has_grad_ && !is_after_ && has(object, names.requires_grad));
        into_->push_back('t');
        const bool is_parameter = reinterpret_cast<PyObject*>(Py_TYPE(object)) == torch.parameter;
        const int64_t key = int64_t(reinterpret_cast<intptr_t>(object)), address = count_at(storage.get(), names.cdata);
        note.numbers.insert(note.numbers.end(), {key, address, place.offset, row, is_parameter, place.dim});
        note.numbers.insert(note.numbers.end(), place.sizes, place.sizes + place.dim);
        note.numbers.insert(note.numbers.end(), place.strides, place.strides + place.dim);
        note.objects.push_back(std::move(dtype));
        note.objects.push_back(std::move(reference));
        note.objects.push_back(name_of(object));
        return PyErr_Occurred() ? Taken::FAILED : Taken::YES;
    }

    Ref name_of(PyObject* object) const {
        PyObject* const known_names = as_noting(self_)->names;
        if (PyDict_Size(known_names) == 0) return Ref();
        const Ref key(PyLong_FromVoidPtr(object));
        PyObject* known = key ? PyDict_GetItemWithError(known_names, key.get()) : nullptr;
        return Ref::borrowed(known && PyWeakref_GetObject(PyTuple_GetItem(known, 0)) == object ? PyTuple_GetItem(known, 1) : nullptr);
    }

    PyObject *self_, *ledger_;
    Log& log_;
    std::string* into_ = &note.given;
    std::vector<Ref> written_;
    size_t num_objects_ = 0, num_numbers_ = 0;
    bool has_grad_, is_after_ = false, is_written_ = false, is_late_ = false;  // after the call; what it wrote; all after the call
};

// An error of ours: the operation is the script's. False with an exception that is the script's own.
bool caught(PyObject* self) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;  // an interrupt
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    const Ref kept_type(type), kept(value), kept_trace(trace);
    if (trace) PyException_SetTraceback(kept.get(), trace);
    return bool(Ref(PyObject_CallMethod(self, "caught", "O", kept.get())));
}

PyObject* at_once(PyObject* self, PyObject* function, PyObject* types, PyObject* args, PyObject* kwargs) {
    return PyObject_CallMethod(self, "_at_once", "OOOO", function, types, args, kwargs ? kwargs : Py_None);
}

// The operation's result, in Python where that takes care to be the same within a mode.
PyObject* call(PyObject* self, PyObject* function, PyObject* args, PyObject* kwargs, int flags) {
    Noting* const noting = as_noting(self);
    if (flags & NEEDS_CARE) noting->care = CAREFUL;
    else if (noting->care > 0) noting->care--;
    else return PyObject_Call(function, args, kwargs);
    const Ref none(kwargs ? nullptr : PyDict_New());
    return kwargs || none ? PyObject_CallMethod(self, "_call", "OOO", function, args, kwargs ? kwargs : none.get()) : nullptr;
}

// Whether the operation's arguments are of no class with rules of its own.
bool are_plain(PyObject* types) {
    for (Py_ssize_t i = 0; PyTuple_Check(types) && i < PyTuple_Size(types); i++)
        if (PyTuple_GetItem(types, i) != torch.tensor && PyTuple_GetItem(types, i) != torch.parameter) return false;
    return PyTuple_Check(types);
}

// Says of a note whose it is, and which numbers its nodes have.
void sign(Note& note, PyObject* self, PyObject* function, int64_t seq, int64_t past) {
    note.put = Ref::borrowed(as_noting(self)->put);
    note.probe = Ref::borrowed(maker_of(self));
    note.function = Ref::borrowed(function);
    note.seq = seq;
    note.past = past;
}

// Counts what was noted. False with an exception that is the script's own.
bool count(PyObject* self) {
    Noting* noting = as_noting(self);
    return ++noting->num != noting->most || Ref(PyObject_CallMethod(self, "_end", nullptr)) || caught(self);
}

PyObject* py_dispatch(PyObject* self, PyObject* const* given, Py_ssize_t num_given) {
    if (num_given < 3 || num_given > 4 || !PyTuple_Check(given[2]))
        return PyErr_Format(PyExc_TypeError, "__torch_dispatch__(function, types, args, kwargs=None): got %zd arguments", num_given);
    PyObject *function = given[0], *types = given[1], *args = given[2], *kwargs = num_given == 4 && given[3] != Py_None ? given[3] : nullptr;
    const Noting* noting = as_noting(self);
    if (!noting->log || is_traced()) return PyObject_Call(function, args, kwargs);
    Ref plan = Ref::borrowed(PyDict_GetItemWithError(noting->plans, function));
    if (!plan && !PyErr_Occurred()) plan = Ref(PyObject_CallMethod(self, "_plan", "O", function));
    if (!plan) return nullptr;
    const char flags = plan.get() == Py_None ? 0 : *PyBytes_AsString(PyTuple_GetItem(plan.get(), 0));
    if (!noting->is_on) return call(self, function, args, kwargs, flags);
    if (plan.get() == Py_None || !are_plain(types) || is_left_to_python() || is_in_backward()) return at_once(self, function, types, args, kwargs);
    const Ref rows(PyObject_GetAttr(maker_of(self), names.rows)), seq(PyObject_CallNoArgs(torch.sequence_nr));
    Log* const log = log_of(noting->log);
    if (!rows || !seq || !log || !is_ledger(rows.get())) return at_once(self, function, types, args, kwargs);
    Writer writer(self, rows.get(), *log);
    const Taken taken = writer.take(plan.get(), args, kwargs);
    if (taken == Taken::NO) return at_once(self, function, types, args, kwargs);
    if (taken == Taken::FAILED && !caught(self)) return nullptr;
    Ref result(call(self, function, args, kwargs, flags));
    if (!result || taken == Taken::FAILED || !noting->is_on) return result.release();
    sign(writer.note, self, function, number_of(seq.get()) - 1, number_of(seq.get()));  // its node took its number just before
    const Taken made = writer.made(result.get(), !(flags & (VIEW | BLANK)));
    if (made == Taken::FAILED) return caught(self) ? result.release() : nullptr;
    if (made == Taken::NO) writer.forget_made();
    put_note(*log, std::move(writer.note));
    if (made == Taken::NO) {  // of what can't be noted: Python takes the note back, and records it with the result
        const Ref done(PyObject_CallMethod(self, "_put_now", "OOO", args, kwargs ? kwargs : Py_None, result.get()));
        return done || caught(self) ? result.release() : nullptr;
    }
    return count(self) ? result.release() : nullptr;
}

// The versions of an argument's tensors.
void versions_of(PyObject* object, std::vector<int64_t>& into) {
    if (is_plain(object)) return into.push_back(version_of(object));
    if (!PyList_Check(object) && !PyTuple_Check(object)) return;
    const Ref items(PySequence_Tuple(object));
    for (Py_ssize_t i = 0; items && i < PyTuple_Size(items.get()); i++)
        if (is_plain(PyTuple_GetItem(items.get(), i))) into.push_back(version_of(PyTuple_GetItem(items.get(), i)));
    forget();
}

// The arguments, one behind the other, those given by name last.
std::vector<PyObject*> all_of(PyObject* args, PyObject* kwargs) {
    std::vector<PyObject*> all;
    for (Py_ssize_t i = 0; i < PyTuple_Size(args); i++) all.push_back(PyTuple_GetItem(args, i));
    PyObject *key, *value;
    for (Py_ssize_t at = 0; kwargs && PyDict_Next(kwargs, &at, &key, &value);) all.push_back(value);
    return all;
}

// Whether an argument, or one of its items, is the result, or one of the results.
bool is_returned(PyObject* object, PyObject* result) {
    if (object == result) return true;
    for (PyObject* several : {object, result}) {
        if (!PyList_Check(several) && !PyTuple_Check(several)) continue;
        const Ref items(PySequence_Tuple(several));
        for (Py_ssize_t i = 0; items && i < PyTuple_Size(items.get()); i++) {
            PyObject* const item = PyTuple_GetItem(items.get(), i);
            if (several == object ? is_plain(item) && is_returned(item, result) : item == object) return true;
        }
    }
    forget();
    return false;
}

// Whether it is a floating-point tensor, or a list that begins with one.
bool is_number(PyObject* result) {
    const bool is_list = PyList_Check(result) || PyTuple_Check(result);
    const Ref first(is_list && PySequence_Size(result) > 0 ? PySequence_GetItem(result, 0) : Ref::borrowed(result).release());
    forget();
    return first && is_plain(first.get()) && says(torch.is_floating_point, first.get());
}

PyObject* py_call(PyObject* self, PyObject* const* given, Py_ssize_t num_given) {
    if (num_given < 3 || num_given > 4 || !PyTuple_Check(given[2]))
        return PyErr_Format(PyExc_TypeError, "call(function, types, args, kwargs=None): got %zd arguments", num_given);
    PyObject *function = given[0], *args = given[2], *kwargs = num_given == 4 && given[3] != Py_None ? given[3] : nullptr;
    const Noting* noting = as_noting(self);
    Log* const log = noting->log ? log_of(noting->log) : nullptr;
    if (!noting->is_on || !log || is_traced()) return PyObject_Call(function, args, kwargs);
    const std::vector<PyObject*> all = all_of(args, kwargs);
    std::vector<int64_t> before, after;
    std::vector<size_t> ends;
    for (PyObject* one : all) {
        versions_of(one, before);
        ends.push_back(before.size());
    }
    const Ref first(PyObject_CallNoArgs(torch.sequence_nr));
    Ref result(first ? PyObject_Call(function, args, kwargs) : nullptr);
    if (!result || !noting->is_on) return result.release();
    // A view counts its version up with all of its base: what was written is what is returned, else the first argument.
    std::vector<bool> is_written;
    bool is_any_written = false, is_any_returned = false;
    for (PyObject* one : all) is_any_returned = is_any_returned || is_returned(one, result.get());
    for (size_t i = 0; i < all.size(); i++) {
        versions_of(all[i], after);
        const size_t begin = i ? ends[i - 1] : 0;
        bool differs = after.size() != ends[i];
        for (size_t at = begin; at < ends[i] && !differs; at++) differs = before[at] != after[at];
        differs = differs && (is_any_returned ? is_returned(all[i], result.get()) : i == 0);
        after.resize(ends[i]);
        is_written.push_back(differs);
        is_any_written = is_any_written || (differs && is_number(all[i]));
    }
    const bool is_new = is_number(result.get()) && (all.empty() || result.get() != all[0]);
    if (!is_any_written && !is_new) return result.release();  // it made nothing: `to` of what is so already
    const Ref rows(PyObject_GetAttr(maker_of(self), names.rows)), last(PyObject_CallNoArgs(torch.sequence_nr));
    if (!rows || !last || !is_ledger(rows.get())) return caught(self) ? result.release() : nullptr;
    Writer writer(self, rows.get(), *log);
    sign(writer.note, self, function, number_of(first.get()), number_of(last.get()));
    Taken taken = writer.take_late(args, kwargs, is_written);
    for (size_t i = 0; i < all.size() && taken == Taken::YES; i++)
        if (is_written[i]) taken = writer.written(Py_ssize_t(i), all[i]);
    if (taken == Taken::YES) taken = writer.value(result.get(), true);
    writer.note.differentiable = writer.note.seq < writer.note.past;
    if (taken == Taken::YES) put_note(*log, std::move(writer.note));
    if (taken == Taken::NO) {
        Ref places(PyList_New(0));
        for (size_t i = 0; i < all.size(); i++)
            if (is_written[i] && PyList_Append(places.get(), Ref(PyLong_FromSize_t(i)).get())) return nullptr;
        const Ref done(PyObject_CallMethod(self, "_at_once", "OOOOOOO", function, args, kwargs ? kwargs : Py_None, result.get(), places.get(), first.get(), last.get()));
        if (!done) taken = Taken::FAILED;
    }
    if (taken == Taken::FAILED) return caught(self) ? result.release() : nullptr;
    return count(self) ? result.release() : nullptr;
}

PyObject* py_share(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    const int64_t most = num_args == NUM_REFERENCES + 1 ? number_of(args[NUM_REFERENCES]) : -1;
    if (most == -2 || !knows_torch()) return nullptr;
    if (most < 0 || !PyDict_Check(args[1]) || !PyDict_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "_share(log, plans, names, put, maker, most): expected a log, two dicts, a function, a probe and a number");
    as_noting(self)->most = most;
    for (int i = 0; i < NUM_REFERENCES; i++) put(references(self)[i], args[i]);
    Py_RETURN_NONE;
}

PyObject* get_is_on(PyObject* self, void*) { return PyBool_FromLong(as_noting(self)->is_on); }

int set_is_on(PyObject* self, PyObject* value, void*) {
    as_noting(self)->is_on = value == Py_True;
    return 0;
}

PyObject* get_num(PyObject* self, void*) { return PyLong_FromLongLong(as_noting(self)->num); }

int set_num(PyObject* self, PyObject* value, void*) {
    const int64_t num = value ? number_of(value) : -2;
    if (num == -2) return PyErr_Occurred() ? -1 : (PyErr_SetString(PyExc_ValueError, "num: got nothing, expected a number"), -1);
    as_noting(self)->num = num;
    return 0;
}

PyMethodDef methods[] = {
    method<py_dispatch>("__torch_dispatch__", "__torch_dispatch__(function, types, args, kwargs=None): its result, with a note of it."),
    method<py_share>("_share", "_share(log, plans, names, put, maker, most): the fields in the struct's order."),
    {nullptr, nullptr, 0, nullptr},
};

PyMethodDef function_methods[] = {
    method<py_call>("call", "call(function, types, args, kwargs=None): its result, with a note of it."),
    method<py_share>("_share", "_share(log, plans, names, put, maker, most): the fields in the struct's order."),
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef properties[] = {
    {"is_on", get_is_on, set_is_on, "whether operations are noted", nullptr},
    {"num", get_num, set_num, "how many were noted or recorded", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

int add_noting(PyObject* module) {
    return add_type<Noting, NUM_REFERENCES>(module, "NotingProbe", "numscope.summary._native.NotingProbe", methods, properties) &&
                   add_type<Noting, NUM_REFERENCES>(module, "FunctionProbe", "numscope.summary._native.FunctionProbe", function_methods, properties)
               ? 0
               : -1;
}

}  // namespace numscope
