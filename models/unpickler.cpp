#include "unpickler.hpp"

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace actzip::models {

namespace {

using at::IValue;

at::ScalarType type_of_storage(const std::string& name) {
  static const std::map<std::string, at::ScalarType> kTypes = {
      {"torch DoubleStorage", at::kDouble},     {"torch FloatStorage", at::kFloat}, {"torch HalfStorage", at::kHalf},
      {"torch BFloat16Storage", at::kBFloat16}, {"torch LongStorage", at::kLong},   {"torch IntStorage", at::kInt},
      {"torch ShortStorage", at::kShort},       {"torch CharStorage", at::kChar},   {"torch ByteStorage", at::kByte},
      {"torch BoolStorage", at::kBool}};
  const auto found = kTypes.find(name);
  if (found == kTypes.end()) throw std::runtime_error(fmt::format("elements of type {}", name));
  return found->second;
}

IValue empty_dict() { return c10::impl::GenericDict(c10::AnyType::get(), c10::AnyType::get()); }

const std::vector<IValue>& checked(const std::vector<IValue>& values, std::size_t least) {
  if (values.size() < least) throw std::runtime_error(fmt::format("{} values where {} belong", values.size(), least));
  return values;
}

/// The stack machine that Python's pickle format describes, as far as protocol 2 and torch.save() need it.
class Unpickler {
 public:
  Unpickler(caffe2::serialize::PyTorchStreamReader& archive, std::string text)
      : archive_(archive), text_(std::move(text)) {}

  IValue run() {
    while (true) {
      const char code = read<char>();
      if (code == '.') return pop();
      if (!(push_constant(code) || remember(code) || gather(code) || call(code))) {
        throw std::runtime_error(fmt::format("pickle instruction 0x{:02x}", static_cast<unsigned char>(code)));
      }
    }
  }

 private:
  bool push_constant(char code) {
    switch (code) {
      case '\x80': read<char>(); return true;  // the protocol's number
      case 'c': return push(read_global());
      case 'X': return push(read_text(read<std::uint32_t>()));  // text
      case 'K': return push(std::int64_t{read<std::uint8_t>()});
      case 'M': return push(std::int64_t{read<std::uint16_t>()});
      case 'J': return push(std::int64_t{read<std::int32_t>()});
      case '\x8a': return push(read_long(read<std::uint8_t>()));
      case 'G': return push(read_double());
      case '\x88': return push(true);
      case '\x89': return push(false);
      case 'N': return push(IValue());
      case '}': return push(empty_dict());
      case ']': return push(c10::impl::GenericList(c10::AnyType::get()));
      case ')': return push_tuple({});
      default: return false;
    }
  }

  bool remember(char code) {
    switch (code) {
      case 'q': memo_[read<std::uint8_t>()] = top(); return true;
      case 'r': memo_[read<std::uint32_t>()] = top(); return true;
      case 'h': return push(memo_.at(read<std::uint8_t>()));
      case 'j': return push(memo_.at(read<std::uint32_t>()));
      case '(': marks_.push_back(stack_.size()); return true;
      default: return false;
    }
  }

  bool gather(char code) {
    switch (code) {
      case 't': return push_tuple(pop_to_mark());
      case '\x85': return push_tuple(pop_many(1));
      case '\x86': return push_tuple(pop_many(2));
      case '\x87': return push_tuple(pop_many(3));
      case 'a': return append(pop_many(1));
      case 'e': return append(pop_to_mark());
      case 's': return insert(pop_many(2));
      case 'u': return insert(pop_to_mark());
      default: return false;
    }
  }

  bool call(char code) {
    switch (code) {
      case 'Q': return push(storage(pop().toTupleRef().elements().vec()));
      case 'R': {
        const std::vector<IValue> arguments = pop().toTupleRef().elements().vec();
        return push(result_of(pop().toStringRef(), arguments));
      }
      case 'b': pop(); return true;  // attributes: the versions of a state dict's modules
      default: return false;
    }
  }

  static IValue result_of(const std::string& name, const std::vector<IValue>& arguments) {
    if (name == "collections OrderedDict") return empty_dict();
    if (name == "torch._utils _rebuild_parameter") return checked(arguments, 1)[0];
    if (name != "torch._utils _rebuild_tensor_v2") throw std::runtime_error(fmt::format("an object of '{}'", name));
    const at::Tensor elements = checked(arguments, 4)[0].toTensor();
    return elements.new_empty({0}).set_(elements.storage(), arguments[1].toInt(), sizes(arguments[2]),
                                        sizes(arguments[3]));
  }

  static std::vector<std::int64_t> sizes(const IValue& tuple) {
    std::vector<std::int64_t> numbers;
    for (const IValue& number : tuple.toTupleRef().elements()) numbers.push_back(number.toInt());
    return numbers;
  }

  /// ("storage", type, name of its record, device, number of elements) as a flat tensor; one for each record.
  at::Tensor storage(const std::vector<IValue>& id) {
    const std::string& record = checked(id, 5)[2].toStringRef();
    const auto [place, is_new] = storages_.try_emplace(record);
    if (is_new) {
      auto [data, bytes] = archive_.getRecord("data/" + record);
      const at::Storage memory(at::Storage::use_byte_size_t(), bytes, std::move(data), nullptr, /*resizable=*/false);
      place->second = at::empty({0}, type_of_storage(id[1].toStringRef())).set_(memory);
    }
    return place->second;
  }

  bool push(IValue value) {
    stack_.push_back(std::move(value));
    return true;
  }
  bool push_tuple(std::vector<IValue> values) { return push(c10::ivalue::Tuple::create(std::move(values))); }

  bool append(std::vector<IValue> values) {
    auto list = top().toList();
    for (IValue& value : values) list.push_back(std::move(value));
    return true;
  }

  bool insert(std::vector<IValue> values) {
    auto dict = top().toGenericDict();
    for (std::size_t i = 0; i + 1 < values.size(); i += 2) dict.insert_or_assign(values[i], values[i + 1]);
    return true;
  }

  const IValue& top() const { return checked(stack_, 1).back(); }
  IValue pop() { return std::move(pop_many(1)[0]); }

  std::vector<IValue> pop_many(std::size_t count) {
    const auto first = checked(stack_, count).size() - count;
    std::vector<IValue> values(stack_.begin() + static_cast<std::ptrdiff_t>(first), stack_.end());
    stack_.resize(first);
    return values;
  }

  std::vector<IValue> pop_to_mark() {
    if (marks_.empty() || marks_.back() > stack_.size()) throw std::runtime_error("an unbalanced pickle");
    const std::size_t mark = marks_.back();
    marks_.pop_back();
    return pop_many(stack_.size() - mark);
  }

  std::string read_text(std::size_t size) {
    if (size > text_.size() - place_) throw std::runtime_error("a truncated pickle");
    place_ += size;
    return text_.substr(place_ - size, size);
  }

  template <class T>
  T read() {
    T value;
    std::memcpy(&value, read_text(sizeof(T)).data(), sizeof(T));
    return value;
  }

  std::string read_line() {
    const std::size_t end = text_.find('\n', place_);
    if (end == std::string::npos) throw std::runtime_error("a truncated pickle");
    std::string line = read_text(end - place_);
    ++place_;
    return line;
  }

  /// Stands for what it names: "torch FloatStorage".
  std::string read_global() {
    const std::string module = read_line();
    return module + " " + read_line();
  }

  /// Little-endian, two's complement, of any length up to 8 bytes.
  std::int64_t read_long(std::size_t size) {
    const std::string bytes = read_text(size);
    if (size > sizeof(std::int64_t)) throw std::runtime_error(fmt::format("an integer of {} bytes", size));
    std::uint64_t value = size > 0 && bytes.back() < 0 ? ~std::uint64_t{0} : 0;
    for (std::size_t i = size; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return static_cast<std::int64_t>(value);
  }

  /// Big-endian, unlike the rest.
  double read_double() {
    std::string bytes = read_text(sizeof(double));
    std::reverse(bytes.begin(), bytes.end());
    double value;
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }

  caffe2::serialize::PyTorchStreamReader& archive_;
  std::string text_;
  std::size_t place_ = 0;
  std::vector<IValue> stack_;
  std::vector<std::size_t> marks_;
  std::map<std::size_t, IValue> memo_;
  std::map<std::string, at::Tensor> storages_;
};

}  // namespace

at::IValue unpickle(caffe2::serialize::PyTorchStreamReader& archive) {
  const auto [data, size] = archive.getRecord("data.pkl");
  return Unpickler(archive, std::string(static_cast<const char*>(data.get()), size)).run();
}

}  // namespace actzip::models
