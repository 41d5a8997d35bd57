// The base of replay/log.py's Log: notes as C++ keeps them, without an object for Python's garbage collector each.
#include "log.h"

#include <cstring>

namespace numscope {
namespace {

constexpr size_t MOST_NOTES = 4096;  // older ones are dropped

struct LogObject {
    PyObject_HEAD
    Log* log;
};

Log& as_log(PyObject* self) {
    LogObject* object = reinterpret_cast<LogObject*>(self);
    if (!object->log) object->log = new Log();
    return *object->log;
}

Ref bytes(const std::string& text) { return Ref(PyBytes_FromStringAndSize(text.data(), Py_ssize_t(text.size()))); }

Ref sizes_of(const int64_t* sizes, int64_t dim) {
    Ref shape(PyTuple_New(Py_ssize_t(dim)));
    for (Py_ssize_t i = 0; shape && i < dim; i++) PyTuple_SetItem(shape.get(), i, PyLong_FromLongLong(sizes[i]));
    return shape;
}

// What a note's tensors and values are for Python, one behind the other.
bool unpack(Log& log, Note& note, std::vector<Ref>& into) {
    const Ref ledger(PyObject_GetAttr(note.probe.get(), names.rows));
    size_t object = 0, number = 0;
    for (const std::string* layout : {&note.given, &note.made})
        for (const char kind : *layout) {
            if (kind == 'v') into.push_back(std::move(note.objects[object++]));
            if (kind != 't') continue;
            int64_t* const numbers = &note.numbers[number];
            const int64_t dim = numbers[5];
            Ref &dtype = note.objects[object], &storage = note.objects[object + 1], &name = note.objects[object + 2];
            if (numbers[3] >= 0) {
                const Ref shape = sizes_of(numbers + 6, dim);
                numbers[3] = ledger && shape ? log.handle_of(ledger.get(), numbers[3], dtype.get(), shape.get()) : -2;
                if (numbers[3] == -2) return false;
            }
            Ref packed(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(numbers), Py_ssize_t((6 + 2 * dim) * sizeof(int64_t))));
            if (!packed) return false;
            into.push_back(std::move(packed));
            into.push_back(std::move(dtype));
            into.push_back(std::move(storage));
            into.push_back(name ? std::move(name) : Ref(PyUnicode_FromStringAndSize("", 0)));
            object += 3;
            number += size_t(6 + 2 * dim);
        }
    return true;
}

Ref as_tuple(std::vector<Ref>& all) {
    Ref tuple(PyTuple_New(Py_ssize_t(all.size())));
    for (size_t i = 0; tuple && i < all.size(); i++) {
        if (!all[i]) return Ref();
        PyTuple_SetItem(tuple.get(), Py_ssize_t(i), all[i].release());
    }
    return tuple;
}

PyObject* taken(Log& log, Note note) {
    log.num_noted -= !note.python;
    if (note.python) return note.python.release();
    std::vector<Ref> walked, all;
    for (size_t i = 0; i < note.codes.size(); i++) {
        walked.push_back(std::move(note.codes[i]));
        walked.emplace_back(PyLong_FromLongLong(note.offsets[i]));
    }
    all.push_back(std::move(note.put));
    all.push_back(Ref::borrowed(note.probe.get()));
    all.push_back(std::move(note.function));
    all.emplace_back(PyLong_FromLongLong(note.num_args));
    all.push_back(std::move(note.keywords));
    all.emplace_back(PyLong_FromLongLong(note.seq));
    all.emplace_back(PyLong_FromLongLong(note.past));
    all.emplace_back(PyBool_FromLong(note.differentiable));
    all.push_back(as_tuple(walked));
    all.push_back(bytes(note.given));
    all.push_back(bytes(note.made));
    return unpack(log, note, all) ? as_tuple(all).release() : nullptr;
}

PyObject* py_popleft(PyObject* self, PyObject* const*, Py_ssize_t) {
    Log& log = as_log(self);
    if (log.notes.empty()) return PyErr_Format(PyExc_IndexError, "pop from an empty log");
    Note note = std::move(log.notes.front());
    log.notes.pop_front();
    if (log.notes.empty()) log.has_bad = false;  // the ledger has it then
    return taken(log, std::move(note));
}

PyObject* py_pop(PyObject* self, PyObject* const*, Py_ssize_t) {
    Log& log = as_log(self);
    if (log.notes.empty()) return PyErr_Format(PyExc_IndexError, "pop from an empty log");
    Note note = std::move(log.notes.back());
    log.notes.pop_back();
    return taken(log, std::move(note));
}

PyObject* py_append(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != 1 || !PyTuple_Check(args[0])) return PyErr_Format(PyExc_TypeError, "append(note): expected a tuple");
    Note note;
    note.python = Ref::borrowed(args[0]);
    put_note(as_log(self), std::move(note));
    Py_RETURN_NONE;
}

PyObject* py_clear(PyObject* self, PyObject* const*, Py_ssize_t) {
    as_log(self).clear();
    Py_RETURN_NONE;
}

PyObject* py_look_again(PyObject* self, PyObject* const*, Py_ssize_t) {
    as_log(self).look_again();
    Py_RETURN_NONE;
}

void drop_first(Log& log, size_t count) {
    std::vector<Note> dropped;  // what they hold may run code as it goes: once the log is in order
    for (size_t i = 0; i < count; i++) {
        log.num_noted -= !log.notes.front().python;
        dropped.push_back(std::move(log.notes.front()));
        log.notes.pop_front();
    }
}

PyObject* py_drop_to(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != 1) return PyErr_Format(PyExc_TypeError, "drop_to(note): got %zd arguments, expected 1", num_args);
    Log& log = as_log(self);
    size_t place = log.notes.size();
    while (place > 0 && log.notes[place - 1].python.get() != args[0]) place--;
    drop_first(log, place);
    return PyBool_FromLong(place > 0);
}

PyObject* py_keep(PyObject* self, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != 1) return PyErr_Format(PyExc_TypeError, "keep(count): got %zd arguments, expected 1", num_args);
    const size_t count = PyLong_AsSize_t(args[0]);
    if (count == size_t(-1) && PyErr_Occurred()) return nullptr;
    Log& log = as_log(self);
    if (log.notes.size() > count) drop_first(log, log.notes.size() - count);
    Py_RETURN_NONE;
}

Py_ssize_t length(PyObject* self) { return Py_ssize_t(as_log(self).notes.size()); }

PyObject* get_num_noted(PyObject* self, void*) { return PyLong_FromLongLong(as_log(self).num_noted); }
PyObject* get_has_bad(PyObject* self, void*) { return PyBool_FromLong(as_log(self).has_bad); }
PyObject* get_num_rows(PyObject* self, void*) { return PyLong_FromSize_t(as_log(self).num_rows()); }

int traverse_log(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(reinterpret_cast<PyObject*>(Py_TYPE(self)));
    const Log* log = reinterpret_cast<LogObject*>(self)->log;
    if (!log) return 0;
    for (const Note& note : log->notes) {
        Py_VISIT(note.python.get());
        Py_VISIT(note.put.get());
        Py_VISIT(note.probe.get());
        for (const Ref& object : note.objects) Py_VISIT(object.get());
    }
    return 0;
}

int clear_log(PyObject* self) {
    if (reinterpret_cast<LogObject*>(self)->log) as_log(self).clear();
    return 0;
}

void dealloc_log(PyObject* self) {
    PyObject_GC_UnTrack(self);
    clear_log(self);
    delete reinterpret_cast<LogObject*>(self)->log;
    PyTypeObject* type = Py_TYPE(self);
    reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

PyMethodDef methods[] = {
    method<py_append>("append", "append(note): a tuple, whose first item is called with the others."),
    method<py_popleft>("popleft", "popleft(): the oldest note."),
    method<py_pop>("pop", "pop(): the newest note."),
    method<py_clear>("clear", "clear(): forget all."),
    method<py_look_again>("look_again", "look_again(): read each tensor again at its next operation."),
    method<py_keep>("keep", "keep(count): forget all notes but so many of the newest."),
    method<py_drop_to>("drop_to", "drop_to(note): forget the notes up to this one. False if it is not there."),
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef properties[] = {
    {"has_bad", get_has_bad, nullptr, "whether a result that was noted is bad", nullptr},
    {"num_noted", get_num_noted, nullptr, "of the notes, those that C has made", nullptr},
    {"num_rows", get_num_rows, nullptr, "of numbers that are held", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyObject* log_type = nullptr;

}  // namespace

void put_note(Log& log, Note&& note) {
    log.num_noted += !note.python;
    log.notes.push_back(std::move(note));
    if (log.notes.size() <= MOST_NOTES) return;
    const Note oldest = std::move(log.notes.front());  // what it holds may run code as it goes
    log.notes.pop_front();
    log.num_noted -= !oldest.python;
}

void Log::clear() {
    has_bad = false;
    num_noted = 0;
    std::deque<Note> gone_notes;
    decltype(known_) gone_keys;
    gone_notes.swap(notes);
    gone_keys.swap(known_);
    num_past_ += int64_t(rows_.size());
    rows_.clear();
}

int64_t Log::read(PyObject* ledger, PyObject* tensor, const Place& place, PyObject* storage, bool is_written) {
    Entry entry;
    const int64_t version = version_of(tensor);
    if (!readable(tensor, entry) || entry.numel >= RELEASE_NUMEL) {
        // An operation that works in place counts the version up only once we are gone, so the tensor itself looks unchanged.
        const Ref alias = is_written ? Ref(PyObject_CallFunctionObjArgs(torch.detach, tensor, nullptr)) : Ref::borrowed(tensor);
        const int64_t handle = alias ? observe_tensor(ledger, alias.get(), Py_None) : -2;
        if (handle < 0) return handle;
        return push({Row(), handle});
    }
    const Key key = {storage, entry.address, version, entry.dtype, {place.sizes, place.sizes + place.dim}};
    if (!is_written && version >= 0) {
        const auto found = known_.find(key);
        if (found != known_.end()) return found->second.first;
    }
    Read read = {Row(), -1};
    reset(read.row);
    entry.row_address = reinterpret_cast<int64_t>(&read.row);
    observe(&entry, 1, int(groups_of(ledger)), 1);
    const int64_t row = push(read);
    if (is_written)
        known_.erase(key);  // not every operation that works in place counts the version up
    else if (version >= 0)
        known_[key] = {row, Ref::borrowed(storage)};
    return row;
}

bool Log::is_bad(PyObject* ledger, int64_t number) const {
    const Read* read = at(number);
    if (!read) return false;
    return read->handle >= 0 ? is_bad_row(ledger, read->handle) : read->row.num_nan != 0 || read->row.num_pos_inf != 0 || read->row.num_neg_inf != 0;
}

int64_t Log::handle_of(PyObject* ledger, int64_t number, PyObject* dtype, PyObject* shape) {
    const Read* read = at(number);
    if (!read) return UNOBSERVED;
    if (read->handle >= 0) return read->handle;
    const Ref row(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(&read->row), sizeof(Row)));
    const Ref handle(row ? PyObject_CallMethod(ledger, "adopt", "OOO", row.get(), dtype, shape) : nullptr);
    const int64_t found = handle ? number_of(handle.get()) : -2;
    if (found >= 0 && at(number)) rows_[size_t(number - num_past_)].handle = found;
    return found;
}

Log* log_of(PyObject* object) { return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(log_type)) ? &as_log(object) : nullptr; }

int add_log(PyObject* module) {
    PyType_Slot slots[] = {
        {Py_tp_dealloc, reinterpret_cast<void*>(dealloc_log)}, {Py_tp_traverse, reinterpret_cast<void*>(traverse_log)},
        {Py_tp_clear, reinterpret_cast<void*>(clear_log)},     {Py_tp_methods, methods},
        {Py_tp_getset, properties},                            {Py_sq_length, reinterpret_cast<void*>(length)},
        {0, nullptr},
    };
    PyType_Spec spec = {"numscope.summary._native.Log", sizeof(LogObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
    log_type = PyType_FromSpec(&spec);  // for ever
    return log_type && PyModule_AddObjectRef(module, "Log", log_type) == 0 ? 0 : -1;
}

}  // namespace numscope
