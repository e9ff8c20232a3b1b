#include "pickle.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <variant>

namespace actzip::models {

namespace {

struct StorageType {
  std::string_view name;
  std::size_t bytes;  ///< of an element
};

/// In the order of ElementType.
constexpr std::array<StorageType, 10> kStorageTypes = {{{"torch DoubleStorage", 8},
                                                        {"torch FloatStorage", 4},
                                                        {"torch HalfStorage", 2},
                                                        {"torch BFloat16Storage", 2},
                                                        {"torch LongStorage", 8},
                                                        {"torch IntStorage", 4},
                                                        {"torch ShortStorage", 2},
                                                        {"torch CharStorage", 1},
                                                        {"torch ByteStorage", 1},
                                                        {"torch BoolStorage", 1}}};

ElementType type_of_storage(const std::string& name) {
  const auto* const found = std::ranges::find(kStorageTypes, name, &StorageType::name);
  if (found == kStorageTypes.end()) throw std::runtime_error(fmt::format("elements of type {}", name));
  return static_cast<ElementType>(found - kStorageTypes.begin());
}

/// All values are in one list and refer to each other by their place in it. So no depth of nesting can overflow the
/// stack, and a list that contains itself needs no special care.
using Place = std::size_t;
using Places = std::vector<Place>;

struct None {};
struct Global {
  std::string name;  ///< "torch FloatStorage"
};
struct Tuple {
  Places items;
};
struct List {
  Places items;
};
struct Dict {
  Places items;  ///< key, value, key, value, ...
};
struct Storage {
  ElementType type;
  std::string record;
};
using Value =
    std::variant<None, bool, std::int64_t, double, std::string, Global, Tuple, List, Dict, Storage, PickledTensor>;

/// In the order of Value, for messages.
constexpr std::array<std::string_view, 11> kKinds = {"None",  "Bool", "Int",  "Double",  "String", "Name",
                                                     "Tuple", "List", "Dict", "Storage", "Tensor"};
static_assert(kKinds.size() == std::variant_size_v<Value>);

/// Throws unless all elements of the tensor lie within `elems` elements.
void check_inside(const PickledTensor& tensor, std::int64_t elems) {
  const auto fail = [&] {
    throw std::runtime_error(
        fmt::format("a tensor outside of its storage: offset {}, sizes [{}], strides [{}], of {} elements",
                    tensor.offset, fmt::join(tensor.sizes, ", "), fmt::join(tensor.strides, ", "), elems));
  };
  if (tensor.sizes.size() != tensor.strides.size() || tensor.offset < 0 || tensor.offset > elems) fail();
  const bool is_empty = std::ranges::find(tensor.sizes, 0) != tensor.sizes.end();  // its strides do not matter
  std::int64_t count = 1;
  std::int64_t last = tensor.offset;
  for (std::size_t d = 0; d < tensor.sizes.size(); ++d) {
    const std::int64_t size = tensor.sizes[d];
    const std::int64_t stride = tensor.strides[d];
    if (size < 0 || stride < 0) fail();
    if (is_empty || size == 1) continue;
    if (count > std::numeric_limits<std::int64_t>::max() / size || stride > (elems - last) / (size - 1)) fail();
    count *= size;
    last += (size - 1) * stride;
  }
  if (!is_empty && last >= elems) fail();
}

/// The stack machine of Python's pickle format, with the instructions that protocol 2 and torch.save() need.
class Unpickler {
 public:
  Unpickler(std::string_view text, const std::function<std::size_t(const std::string&)>& record_bytes)
      : text_(text), record_bytes_(record_bytes) {}

  PickledTensors run() {
    while (true) {
      const char code = read<char>();
      if (code == '.') return tensors_of(value(pop()));
      if (!(push_constant(code) || remember(code) || gather(code) || call(code))) {
        throw std::runtime_error(fmt::format("pickle instruction 0x{:02x}", static_cast<unsigned char>(code)));
      }
    }
  }

 private:
  bool push_constant(char code) {
    switch (code) {
      case '\x80': read<char>(); return true;  // the protocol version
      case 'c': return push(read_global());
      case 'X': return push(std::string(read_text(read<std::uint32_t>())));
      case 'K': return push(std::int64_t{read<std::uint8_t>()});
      case 'M': return push(std::int64_t{read<std::uint16_t>()});
      case 'J': return push(std::int64_t{read<std::int32_t>()});
      case '\x8a': return push(read_long(read<std::uint8_t>()));
      case 'G': return push(read_double());
      case '\x88': return push(true);
      case '\x89': return push(false);
      case 'N': return push(None{});
      case '}': return push(Dict{});
      case ']': return push(List{});
      case ')': return push(Tuple{});
      default: return false;
    }
  }

  bool remember(char code) {
    switch (code) {
      case 'q': memo_[read<std::uint8_t>()] = top(); return true;
      case 'r': memo_[read<std::uint32_t>()] = top(); return true;
      case 'h': return recall(read<std::uint8_t>());
      case 'j': return recall(read<std::uint32_t>());
      case '(': marks_.push_back(stack_.size()); return true;
      default: return false;
    }
  }

  bool gather(char code) {
    switch (code) {
      case 't': return push(Tuple{pop_to_mark()});
      case '\x85': return push(Tuple{pop_many(1)});
      case '\x86': return push(Tuple{pop_many(2)});
      case '\x87': return push(Tuple{pop_many(3)});
      case 'a': return append<List>(pop_many(1));
      case 'e': return append<List>(pop_to_mark());
      case 's': return append<Dict>(pop_many(2));
      case 'u': return append<Dict>(pop_to_mark());
      default: return false;
    }
  }

  bool call(char code) {
    switch (code) {
      case 'Q': return push(storage(as<Tuple>(pop()).items));
      case 'R': {
        const Place arguments = pop();
        return push_result(as<Global>(pop()).name, as<Tuple>(arguments).items);
      }
      case 'b': pop(); return true;  // attributes: the versions of a state dict's modules
      default: return false;
    }
  }

  bool push_result(const std::string& name, const Places& arguments) {
    if (name == "collections OrderedDict") return push(Dict{});
    if (name == "torch._utils _rebuild_parameter") return push_place(argument(arguments, 0));
    if (name == "torch._utils _rebuild_tensor_v2") return push(tensor(arguments));
    throw std::runtime_error(fmt::format("an object of '{}'", name));
  }

  /// Arguments: ("storage", type, name of its record, device, number of elements).
  Storage storage(const Places& id) {
    (void)argument(id, 4);
    return {type_of_storage(as<Global>(id[1]).name), as<std::string>(id[2])};
  }

  /// Arguments: (storage, offset, sizes, strides, ...).
  PickledTensor tensor(const Places& arguments) {
    const Storage from = as<Storage>(argument(arguments, 0));
    PickledTensor result{from.type, from.record, as<std::int64_t>(argument(arguments, 1)),
                         numbers(argument(arguments, 2)), numbers(argument(arguments, 3))};
    const std::size_t elems = record_bytes_(from.record) / kStorageTypes[static_cast<std::size_t>(from.type)].bytes;
    check_inside(result, static_cast<std::int64_t>(elems));
    return result;
  }

  std::vector<std::int64_t> numbers(Place tuple) {
    std::vector<std::int64_t> result;
    for (const Place number : as<Tuple>(tuple).items) result.push_back(as<std::int64_t>(number));
    return result;
  }

  /// Behaves like Python's dict: a repeated name keeps its first place and gets the last value.
  PickledTensors tensors_of(const Value& root) const {
    const auto* const dict = std::get_if<Dict>(&root);
    if (dict == nullptr) {
      throw NoDictOfTensors(fmt::format("holds a {} (allowed: a dict of tensors)", kKinds[root.index()]));
    }
    PickledTensors tensors;
    std::map<std::string_view, std::size_t> places;
    for (std::size_t i = 0; i < dict->items.size(); i += 2) {
      const Value& key = value(dict->items[i]);
      const Value& item = value(dict->items[i + 1]);
      const auto* const name = std::get_if<std::string>(&key);
      const auto* const tensor = std::get_if<PickledTensor>(&item);
      if (name == nullptr || tensor == nullptr) {
        throw NoDictOfTensors(fmt::format("holds a dict of {} to {} (allowed: of names to tensors)",
                                          kKinds[key.index()], kKinds[item.index()]));
      }
      const auto [place, is_new] = places.try_emplace(*name, tensors.size());
      if (is_new) tensors.emplace_back(*name, PickledTensor{});
      tensors[place->second].second = *tensor;
    }
    return tensors;
  }

  [[nodiscard]] const Value& value(Place place) const { return values_[place]; }

  template <class Kind>
  Kind& as(Place place) {
    if (auto* const found = std::get_if<Kind>(&values_[place])) return *found;
    throw std::runtime_error(fmt::format("a {} where a {} belongs", kKinds[values_[place].index()],
                                         kKinds[Value(std::in_place_type<Kind>).index()]));
  }

  static Place argument(const Places& arguments, std::size_t index) {
    if (index < arguments.size()) return arguments[index];
    throw std::runtime_error(fmt::format("{} values where {} belong", arguments.size(), index + 1));
  }

  bool push(Value value) {
    values_.push_back(std::move(value));
    return push_place(values_.size() - 1);
  }
  bool push_place(Place place) {
    stack_.push_back(place);
    return true;
  }

  bool recall(std::size_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) throw std::runtime_error(fmt::format("value {}, which was not kept", number));
    return push_place(found->second);
  }

  template <class Kind>
  bool append(const Places& added) {
    if (std::is_same_v<Kind, Dict> && added.size() % 2 != 0) throw std::runtime_error("a key without a value");
    Places& items = as<Kind>(top()).items;
    items.insert(items.end(), added.begin(), added.end());
    return true;
  }

  [[nodiscard]] Place top() const {
    if (stack_.empty()) throw std::runtime_error("an unbalanced pickle");
    return stack_.back();
  }
  Place pop() { return pop_many(1)[0]; }

  Places pop_many(std::size_t count) {
    if (stack_.size() < count) throw std::runtime_error("an unbalanced pickle");
    const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
    Places places(first, stack_.end());
    stack_.erase(first, stack_.end());
    return places;
  }

  Places pop_to_mark() {
    if (marks_.empty() || marks_.back() > stack_.size()) throw std::runtime_error("an unbalanced pickle");
    const std::size_t mark = marks_.back();
    marks_.pop_back();
    return pop_many(stack_.size() - mark);
  }

  std::string_view read_text(std::size_t size) {
    if (size > text_.size()) throw std::runtime_error("a truncated pickle");
    const std::string_view text = text_.substr(0, size);
    text_.remove_prefix(size);
    return text;
  }

  template <class T>
  T read() {
    T number;
    std::memcpy(&number, read_text(sizeof(T)).data(), sizeof(T));
    return number;
  }

  std::string_view read_line() {
    const std::size_t end = text_.find('\n');
    if (end == std::string_view::npos) throw std::runtime_error("a truncated pickle");
    const std::string_view line = read_text(end);
    text_.remove_prefix(1);
    return line;
  }

  /// Reads a name that stands for a Python object; the object is not imported.
  Global read_global() {
    const std::string_view module = read_line();
    return {fmt::format("{} {}", module, read_line())};
  }

  /// Reads a little-endian integer in two's complement, of up to 8 bytes.
  std::int64_t read_long(std::size_t size) {
    const std::string_view bytes = read_text(size);
    if (size > sizeof(std::int64_t)) throw std::runtime_error(fmt::format("an integer of {} bytes", size));
    std::uint64_t number = size > 0 && bytes.back() < 0 ? ~std::uint64_t{0} : 0;
    for (std::size_t i = size; i-- > 0;) number = number << 8U | static_cast<unsigned char>(bytes[i]);
    return static_cast<std::int64_t>(number);
  }

  /// Reads a double, which is big-endian, unlike everything else.
  double read_double() {
    std::uint64_t bits = 0;
    for (const char byte : read_text(sizeof(double))) bits = bits << 8U | static_cast<unsigned char>(byte);
    return std::bit_cast<double>(bits);
  }

  std::string_view text_;  ///< the part not yet read
  const std::function<std::size_t(const std::string&)>& record_bytes_;
  std::vector<Value> values_;
  Places stack_;
  std::vector<std::size_t> marks_;
  std::map<std::size_t, Place> memo_;
};

}  // namespace

PickledTensors unpickle_tensors(std::string_view pickle,
                                const std::function<std::size_t(const std::string& record)>& record_bytes) {
  return Unpickler(pickle, record_bytes).run();
}

}  // namespace actzip::models
