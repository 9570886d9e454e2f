#include "data/service/wire.h"

#include "runtime/base/check.h"

namespace quintet::data {
namespace {

template <typename T>
concept Number = std::is_arithmetic_v<T> || std::is_enum_v<T>;

class Writer {
 public:
  template <Number T>
  void put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put(const std::string& text) {
    put(text.size());
    bytes_ += text;
  }
  template <typename T>
  void put(const std::vector<T>& values) {
    put(values.size());
    if constexpr (Number<T>)
      bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    else
      for (const T& value : values) put(value);
  }
  template <typename T>
  void put(const NdArray<T>& array) {
    put(array.shape);
    put(array.values);
  }
  void append(const void* data, size_t size) {
    bytes_.append(static_cast<const char*>(data), size);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : left_(bytes) {}
  std::string_view take(size_t size) {
    QT_CHECK_AS(ExitCode::kPeer, size <= left_.size(),
                "data service: a message ends early; do all ranks run the same program?");
    const std::string_view part = left_.substr(0, size);
    left_.remove_prefix(size);
    return part;
  }
  template <Number T>
  void get(T& value) {
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
  }
  void get(std::string& text) {
    size_t size = 0;
    get(size);
    text = take(size);
  }
  template <typename T>
  void get(std::vector<T>& values) {
    size_t size = 0;
    get(size);
    if constexpr (Number<T>) {
      const std::string_view part = take(size * sizeof(T));
      values.resize(size);
      if (size > 0) std::memcpy(values.data(), part.data(), part.size());
    } else {
      values.clear();
      for (size_t i = 0; i < size; ++i) get(values.emplace_back());
    }
  }
  template <typename T>
  void get(NdArray<T>& array) {
    get(array.shape);
    get(array.values);
  }
  template <typename T>
  T get() {
    T value{};
    get(value);
    return value;
  }

 private:
  std::string_view left_;
};

/// Alternative `index` of the variant, read from the bytes.
template <size_t I = 0>
Value get_value(ByteReader& reader, size_t index) {
  if constexpr (I < std::variant_size_v<Value>) {
    if (index == I)
      return Value(std::in_place_index<I>, reader.get<std::variant_alternative_t<I, Value>>());
    return get_value<I + 1>(reader, index);
  }
  fail(ExitCode::kPeer,
       "data service: a feature of unknown type; do all ranks run the same program?");
}

template <typename StartOrConst, typename Visit>
void each_field(StartOrConst& start, Visit&& visit) {
  visit(start.seed);
  visit(start.position);
  visit(start.shard.index);
  visit(start.shard.count);
  visit(start.shard.microbatches);
  visit(start.credits);
}

void put_error(Writer& writer, const std::exception_ptr& error) {
  if (!error) return writer.put(int32_t{-1});
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    writer.put(static_cast<int32_t>(known.code()));
    writer.put(std::string(known.what()));
  } catch (const std::exception& other) {
    writer.put(static_cast<int32_t>(ExitCode::kBug));
    writer.put(std::string(other.what()));
  }
}

std::exception_ptr get_error(ByteReader& reader) {
  const auto code = reader.get<int32_t>();
  if (code < 0) return nullptr;
  return std::make_exception_ptr(Error(static_cast<ExitCode>(code), reader.get<std::string>()));
}

}  // namespace

std::string to_wire(const WorkChunk& chunk) {
  Writer writer;
  put_error(writer, chunk.error);
  writer.put(chunk.examples.size());
  for (const Example& example : chunk.examples) {
    writer.put(example.key.a);
    writer.put(example.key.b);
    writer.put(example.index);
    writer.put(example.items().size());
    for (const auto& [name, value] : example.items()) {
      writer.put(name);
      writer.put(value.index());
      std::visit([&](const auto& v) { writer.put(v); }, value);
    }
  }
  return writer.take();
}

WorkChunk chunk_from_wire(std::string_view bytes, const Provenance& provenance) {
  ByteReader reader(bytes);
  WorkChunk chunk;
  chunk.error = get_error(reader);
  chunk.examples.resize(reader.get<size_t>());
  for (Example& example : chunk.examples) {
    reader.get(example.key.a);
    reader.get(example.key.b);
    reader.get(example.index);
    example.provenance = &provenance;
    for (auto items = reader.get<size_t>(); items > 0; --items) {
      auto name = reader.get<std::string>();
      const auto type = reader.get<size_t>();
      example.items().emplace_back(std::move(name), get_value(reader, type));
    }
  }
  return chunk;
}

std::string to_wire(const Delivery& delivery, const Shard& shard) {
  Writer writer;
  writer.put(delivery.sender);
  put_error(writer, delivery.error);
  writer.put(delivery.position);
  writer.put(static_cast<int32_t>(delivery.batch.has_value()));
  if (!delivery.batch) return writer.take();
  const Batch& batch = *delivery.batch;
  const int64_t run = shard.run(batch.features.begin()->second.shape[0]);
  const auto first = [&](int64_t microbatch) {
    return (microbatch * shard.count + shard.index) * run;
  };
  int64_t rows = 0;
  for (int64_t i = 0; i < shard.microbatches; ++i)
    rows += std::clamp<int64_t>(batch.rows - first(i), 0, run);
  writer.put(rows);
  writer.put(batch.features.size());
  for (const auto& [name, array] : batch.features) {
    std::vector<int64_t> shape = array.shape;
    const size_t row_bytes = array.bytes.size() / static_cast<size_t>(shape[0]);
    shape[0] = run * shard.microbatches;
    writer.put(name);
    writer.put(array.dtype);
    writer.put(shape);
    for (int64_t i = 0; i < shard.microbatches; ++i)
      writer.append(array.bytes.data() + static_cast<size_t>(first(i)) * row_bytes,
                    static_cast<size_t>(run) * row_bytes);
  }
  return writer.take();
}

Delivery delivery_from_wire(std::string_view bytes) {
  ByteReader reader(bytes);
  Delivery delivery;
  reader.get(delivery.sender);
  delivery.error = get_error(reader);
  reader.get(delivery.position);
  if (reader.get<int32_t>() == 0) return delivery;
  Batch& batch = delivery.batch.emplace();
  reader.get(batch.rows);
  for (auto features = reader.get<size_t>(); features > 0; --features) {
    HostArray& array = batch.features[reader.get<std::string>()];
    const auto dtype = reader.get<DType>();
    array = HostArray(dtype, reader.get<std::vector<int64_t>>());
    const std::string_view part = reader.take(array.bytes.size());
    std::memcpy(array.bytes.data(), part.data(), part.size());
  }
  return delivery;
}

std::string to_wire(int sender, int other) {
  Writer writer;
  writer.put(sender);
  writer.put(other);
  return writer.take();
}

std::pair<int, int> waiting_from_wire(std::string_view bytes) {
  ByteReader reader(bytes);
  const int sender = reader.get<int>(), other = reader.get<int>();
  return {sender, other};
}

std::string to_wire(const Start& start) {
  Writer writer;
  each_field(start, [&](const auto& field) { writer.put(field); });
  return writer.take();
}

Start start_from_wire(std::string_view bytes) {
  ByteReader reader(bytes);
  Start start;
  each_field(start, [&](auto& field) { reader.get(field); });
  return start;
}

}  // namespace quintet::data
