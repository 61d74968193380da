#include "request_records.h"

#include <cstring>
#include <string_view>

#include "blake2b.h"

namespace llmprism {
namespace {

constexpr uint16_t kArrived = 5, kText = 6, kEvent = 7, kEnded = 8;
constexpr uint8_t kQueued = 1, kRequestId = 1, kExternalId = 2, kExternalIdRest = 3, kFinishError = 4;
constexpr size_t kInlineBytes = 64, kTextBytes = 96, kMaxIdBytes = kInlineBytes + kTextBytes;
constexpr size_t kContextBytes = 32, kTraceBytes = 16;
constexpr uint64_t kSampled = 4, kRemote = 8;  // of a carrier's flags (frameworks/vllm/carrier.py)
constexpr Py_ssize_t kFewEvents = 16;

struct alignas(8) Slot {
    uint16_t kind = 0, entries = 0;
    uint32_t reserved = 0;
    uint64_t handle = 0;
    uint8_t rest[112] = {};

    void write(size_t at, const void* from, size_t size) { std::memcpy(rest + at - 16, from, size); }
    template <typename Number>
    void write_number(size_t at, Number value) { write(at, &value, sizeof value); }
};
static_assert(sizeof(Slot) == kSlotBytes);

struct Carrier {
    uint64_t arrival_ns, flags;
    uint8_t ids[kContextBytes];
    std::string_view external_id;
};

bool read_text(PyObject* text, std::string_view* found) {
    if (!PyUnicode_Check(text)) return false;
    Py_ssize_t size = 0;
    const char* raw = PyUnicode_AsUTF8AndSize(text, &size);
    if (raw == nullptr) return false;
    *found = {raw, static_cast<size_t>(size)};
    return true;
}

bool read_number(PyObject* number, uint64_t most, uint64_t* value) {
    if (!PyLong_Check(number)) return false;
    *value = PyLong_AsUnsignedLongLong(number);
    return *value <= most && PyErr_Occurred() == nullptr;
}

uint64_t hash_id(std::string_view id) {
    const uint64_t hash = hash_blake2b_64(reinterpret_cast<const uint8_t*>(id.data()), id.size());
    return hash != 0 ? hash : 1;
}

bool take_field(std::string_view* text, std::string_view* field) {
    const size_t end = text->find('|');
    if (end == std::string_view::npos) return false;
    *field = text->substr(0, end);
    text->remove_prefix(end + 1);
    return true;
}

bool parse_decimal(std::string_view text, uint64_t* value) {
    if (text.empty() || text.size() > 18) return false;
    *value = 0;
    for (const char digit : text) {
        if (digit < '0' || digit > '9') return false;
        *value = *value * 10 + static_cast<uint64_t>(digit - '0');
    }
    return true;
}

int read_hex(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

bool parse_ids(std::string_view text, uint8_t* ids) {
    if (text.size() != 2 * kContextBytes) return false;
    for (size_t at = 0; at < kContextBytes; ++at) {
        const int high = read_hex(text[2 * at]), low = read_hex(text[2 * at + 1]);
        if (high < 0 || low < 0) return false;
        ids[at] = static_cast<uint8_t>(high << 4 | low);
    }
    static constexpr uint8_t kNoTrace[kTraceBytes] = {};
    return std::memcmp(ids, kNoTrace, kTraceBytes) != 0;
}

bool parse_carrier(std::string_view text, std::string_view host_mark, Carrier* carrier) {
    std::string_view version, mark, arrival, flags, ids, traceparent;
    if (!take_field(&text, &version) || !take_field(&text, &mark) || !take_field(&text, &arrival) ||
        !take_field(&text, &flags) || !take_field(&text, &ids) || !take_field(&text, &traceparent)) {
        return false;
    }
    carrier->external_id = text;
    return version == "1" && !mark.empty() && mark == host_mark && parse_decimal(arrival, &carrier->arrival_ns) &&
           parse_decimal(flags, &carrier->flags) && parse_ids(ids, carrier->ids);
}

void write_text(Slot* slot, uint64_t handle, uint8_t which, std::string_view text) {
    slot->kind = kText;
    slot->handle = handle;
    slot->write_number(16, which);
    slot->write_number(18, static_cast<uint16_t>(text.size()));
    slot->write(32, text.data(), text.size());
}

void write_event(Slot* slot, uint64_t handle, uint64_t time_ns, uint64_t step, uint32_t tokens, uint8_t event) {
    slot->kind = kEvent;
    slot->handle = handle;
    slot->write_number(16, time_ns);
    slot->write_number(24, step);
    slot->write_number(32, tokens);
    slot->write_number(36, event);
}

size_t write_arrival(Slot* slots, std::string_view id, const Carrier& carrier, uint64_t now_ns) {
    const uint64_t handle = hash_id(id);
    const bool is_same = carrier.external_id == id;
    const std::string_view external = is_same ? std::string_view() : carrier.external_id;
    const uint8_t flags = static_cast<uint8_t>(((carrier.flags & kSampled) != 0) | ((carrier.flags & kRemote) != 0) << 1 |
                                               (is_same && !id.empty()) << 2);
    Slot& first = slots[0];
    first.kind = kArrived;
    first.handle = handle;
    first.write_number(16, carrier.arrival_ns != 0 ? carrier.arrival_ns : now_ns);
    first.write(24, carrier.ids, kContextBytes);
    first.write_number(56, flags);
    first.write_number(58, static_cast<uint16_t>(id.size()));
    first.write_number(60, static_cast<uint16_t>(external.size()));
    first.write(64, id.data(), id.size() < kInlineBytes ? id.size() : kInlineBytes);
    size_t count = 1;
    if (id.size() > kInlineBytes) write_text(&slots[count++], handle, kRequestId, id.substr(kInlineBytes));
    if (!external.empty()) write_text(&slots[count++], handle, kExternalId, external.substr(0, kTextBytes));
    if (external.size() > kTextBytes) {
        write_text(&slots[count++], handle, kExternalIdRest, external.substr(kTextBytes));
    }
    write_event(&slots[count++], handle, now_ns, kUnknown, 0, kQueued);
    return count;
}

SlotRing* read_ring(PyObject* object) {
    return Py_IS_TYPE(object, slot_ring_type) ? reinterpret_cast<SlotRing*>(object) : nullptr;
}

void put(SlotRing* ring, const Slot* slots, size_t count) {
    look_after(ring, put_slots(ring, reinterpret_cast<const uint8_t*>(slots), count));
}

PyObject* leave_to_python() {
    PyErr_Clear();
    Py_RETURN_FALSE;
}

}  // namespace

PyObject* put_arrival(PyObject*, PyObject* const* args, Py_ssize_t count) {
    SlotRing* ring = count == 5 ? read_ring(args[0]) : nullptr;
    std::string_view id, text, host_mark;
    uint64_t now_ns = 0;
    Carrier carrier{};
    if (ring == nullptr || !read_text(args[1], &id) || !read_text(args[2], &text) || !read_text(args[3], &host_mark) ||
        !read_number(args[4], INT64_MAX, &now_ns) || id.size() > kMaxIdBytes ||
        !parse_carrier(text, host_mark, &carrier) || carrier.external_id.size() > kMaxIdBytes) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    Slot slots[5];
    put(ring, slots, write_arrival(slots, id, carrier, now_ns));
    return PyLong_FromUnsignedLongLong(carrier.flags);
}

PyObject* put_events(PyObject*, PyObject* const* args, Py_ssize_t count) {
    SlotRing* ring = count == 5 ? read_ring(args[0]) : nullptr;
    uint64_t event = 0, time_ns = 0, step = 0;
    if (ring == nullptr || !read_number(args[1], UINT8_MAX, &event) || !read_number(args[2], INT64_MAX, &time_ns) ||
        !PyDict_Check(args[3]) || !read_number(args[4], UINT64_MAX, &step)) {
        return leave_to_python();
    }
    Slot slots[kFewEvents];
    Py_ssize_t at = 0, made = 0;
    PyObject *name = nullptr, *number = nullptr;
    if (PyDict_Size(args[3]) > kFewEvents) return leave_to_python();
    while (PyDict_Next(args[3], &at, &name, &number) != 0) {
        std::string_view id;
        uint64_t tokens = 0;
        if (!read_text(name, &id) || !read_number(number, UINT32_MAX, &tokens)) return leave_to_python();
        write_event(&slots[made++], hash_id(id), time_ns, step, static_cast<uint32_t>(tokens),
                    static_cast<uint8_t>(event));
    }
    if (made != 0) put(ring, slots, static_cast<size_t>(made));
    Py_RETURN_TRUE;
}

PyObject* put_end(PyObject*, PyObject* const* args, Py_ssize_t count) {
    SlotRing* ring = count == 9 ? read_ring(args[0]) : nullptr;
    std::string_view id;
    uint64_t time_ns = 0, finish = 0;
    if (ring == nullptr || !read_text(args[1], &id) || !read_number(args[2], INT64_MAX, &time_ns) ||
        !read_number(args[8], UINT8_MAX, &finish)) {
        return leave_to_python();
    }
    Slot slot;
    slot.kind = kEnded;
    slot.handle = hash_id(id);
    slot.write_number(16, time_ns);
    for (size_t field = 0; field < 5; ++field) {
        uint64_t total = 0;
        if (!read_number(args[3 + field], UINT32_MAX, &total)) return leave_to_python();
        slot.write_number(24 + 4 * field, static_cast<uint32_t>(total));
    }
    slot.write_number(44, static_cast<uint8_t>(finish));
    slot.write_number(45, static_cast<uint8_t>(finish == kFinishError));
    put(ring, &slot, 1);
    Py_RETURN_TRUE;
}

PyObject* derive_handle(PyObject*, PyObject* request_id) {
    std::string_view id;
    if (read_text(request_id, &id)) return PyLong_FromUnsignedLongLong(hash_id(id));
    PyErr_Clear();  // lone surrogates
    PyObject* raw = PyUnicode_AsEncodedString(request_id, "utf-8", "surrogatepass");
    if (raw == nullptr) return nullptr;
    char* bytes = nullptr;
    Py_ssize_t size = 0;
    const bool is_read = PyBytes_AsStringAndSize(raw, &bytes, &size) == 0;
    const uint64_t handle = is_read ? hash_id({bytes, static_cast<size_t>(size)}) : 0;
    Py_DECREF(raw);
    return is_read ? PyLong_FromUnsignedLongLong(handle) : nullptr;
}

}  // namespace llmprism
