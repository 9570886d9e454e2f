// quintet.h on Model and Worker: exceptions become a status and a sentence.

#include <algorithm>
#include <cmath>
#include <new>
#include <numeric>

#include "apps/library/model.h"
#include "apps/library/quintet.h"
#include "runtime/base/check.h"

using namespace quintet;
using namespace quintet::library;
using Json = nlohmann::json;

struct quintet_model {
  std::shared_ptr<Model> model;
};

struct quintet_result {
  struct Values {
    size_t rows = 0, width = 0;
    std::vector<float> numbers;
  };
  std::shared_ptr<Model> model;
  CallPtr call;
  bool is_read = false;
  std::string piece;
  std::vector<std::string> texts;
  std::vector<Values> values;
  std::vector<int32_t> ids;
};

struct quintet_batches {
  Worker worker;
  std::vector<Json> described;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<quintet_feature> features;
  std::vector<size_t> bytes;
};

namespace {

constexpr int kNotUtf8 = 316;  // of nlohmann's errors
thread_local std::string last_error;

quintet_status failed(ExitCode code, const std::string& sentence) noexcept {
  try {
    last_error = sentence;
  } catch (...) {
    last_error.clear();
  }
  return static_cast<quintet_status>(code);
}

/// What `body` gives, or what it threw.
template <typename Body>
quintet_status guarded(const Body& body) noexcept {
  try {
    return body();
  } catch (const Error& error) {
    return failed(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return failed(ExitCode::kEnvironment, "out of memory");
  } catch (const Json::type_error& error) {
    if (error.id != kNotUtf8) return failed(ExitCode::kBug, error.what());
    return failed(ExitCode::kUsage, fmt::format("a text is not UTF-8: {}", error.what()));
  } catch (const std::exception& error) {
    return failed(ExitCode::kBug, error.what());
  }
}

void check_given(const void* pointer, const char* name) {
  QT_CHECK(pointer != nullptr, "{}: is NULL", name);
}

std::vector<std::string> list_of(const char* const* texts) {
  std::vector<std::string> list;
  for (; texts != nullptr && *texts != nullptr; ++texts) list.emplace_back(*texts);
  return list;
}

Json array_of(const char* const* texts, size_t count, const char* name) {
  check_given(texts, name);
  Json array = Json::array();
  for (size_t i = 0; i < count; ++i) {
    check_given(texts[i], fmt::format("{}[{}]", name, i).c_str());
    array.push_back(texts[i]);
  }
  return array;
}

Json fields_of(const char* options) {
  if (options == nullptr) return Json::object();
  Json fields = Json::parse(options, nullptr, false);
  QT_CHECK(fields.is_object(), "options: expected a JSON object, found: {}", options);
  return fields;
}

quintet_status begin(quintet_model* model, const char* target, const Json& body,
                     quintet_result** result) {
  check_given(model, "model");
  check_given(result, "result");
  *result = nullptr;
  auto made = std::make_unique<quintet_result>();
  made->model = model->model;
  made->call = made->model->ask(target, body);
  *result = made.release();
  return QUINTET_OK;
}

/// For a field of a request whose other values the result of the call has no place for.
void check_is(const Json& body, const char* field, const Json& value, const char* advice) {
  QT_CHECK(!body.contains(field) || body[field] == value, "{}: expected {}, found {}; {}", field,
           value.dump(), body[field].dump(), advice);
}

float number_of(const Json& value) { return value.is_null() ? NAN : value.get<float>(); }

void add_rows(const Json& rows, quintet_result::Values& values) {
  for (const Json& row : rows) {
    if (row.is_array()) {
      add_rows(row, values);
      continue;
    }
    values.width = rows.size();
    values.numbers.push_back(number_of(row));
  }
}

/// The parts that the server's answers have.
void read_answer(const Json& answer, quintet_result& result) {
  for (const Json& choice : answer.value("choices", Json::array()))
    result.texts.push_back(choice.at("text"));
  for (const Json& item : answer.value("data", Json::array())) {
    quintet_result::Values& values = result.values.emplace_back();
    if (item.contains("score"))
      values = {1, 1, {number_of(item["score"])}};
    else
      add_rows(item.at("embedding"), values);
    values.rows = values.numbers.size() / std::max<size_t>(1, values.width);
  }
  if (answer.contains("tokens")) result.ids = answer["tokens"].get<std::vector<int32_t>>();
  if (answer.contains("prompt")) result.texts.push_back(answer["prompt"]);
}

/// Text of a server-sent event; none if it holds none.
std::string text_of(std::string_view event) {
  constexpr std::string_view kData = "data: ";
  if (event.starts_with(kData)) event.remove_prefix(kData.size());
  if (event.starts_with("[DONE]")) return "";
  const Json json = Json::parse(event);
  if (json.contains("error"))
    fail(ExitCode::kEnvironment, "{}", json["error"].value("message", std::string(event)));
  return json.at("choices").empty() ? "" : json["choices"][0].at("text");
}

Json generation(const char* options) {
  Json fields = fields_of(options);
  if (!fields.contains("temperature")) fields["temperature"] = 0;
  return fields;
}

void read_features(quintet_batches& batches) {
  const std::string text = batches.worker.greeting();
  if (text.empty()) return;  // there are no batches
  const Json greeting = Json::parse(text);
  batches.described = greeting.at("features").get<std::vector<Json>>();
  for (const Json& one : batches.described) {
    batches.shapes.push_back(one.at("shape").get<std::vector<int64_t>>());
    batches.bytes.push_back(one.at("bytes"));
  }
  for (size_t i = 0; i < batches.described.size(); ++i)
    batches.features.push_back({batches.described[i]["name"].get_ref<std::string&>().c_str(),
                                batches.described[i]["dtype"].get_ref<std::string&>().c_str(),
                                batches.shapes[i].size(), batches.shapes[i].data()});
}

}  // namespace

extern "C" {

int quintet_interface(void) { return QUINTET_INTERFACE; }
const char* quintet_version(void) { return QUINTET_VERSION; }
const char* quintet_error(void) { return last_error.c_str(); }
const char* quintet_program(void) {
  thread_local std::string path;
  return (path = program_path()).c_str();
}

quintet_status quintet_load(const char* model_dir, const char* const* flags,
                            quintet_model** model) {
  return guarded([&] {
    check_given(model, "model");
    *model = nullptr;
    check_given(model_dir, "model_dir");
    // A forked process has neither the thread nor what the other threads held.
    const auto destroy = [](Model* of) { of->is_ours() ? delete of : void(); };
    *model = new quintet_model{{new Model(model_dir, list_of(flags)), destroy}};
    return QUINTET_OK;
  });
}

void quintet_close(quintet_model* model) {
  if (model == nullptr) return;
  static_cast<void>(guarded([&] {
    if (model->model->is_ours()) model->model->close();
    return QUINTET_OK;
  }));
  delete model;
}

const char* quintet_describe(const quintet_model* model) {
  return model == nullptr ? nullptr : model->model->description().c_str();
}

quintet_status quintet_generate(quintet_model* model, const char* const* inputs, size_t count,
                                const char* options, quintet_result** result) {
  return guarded([&] {
    Json body = generation(options);
    body["prompt"] = array_of(inputs, count, "inputs");
    body["stream"] = false;
    return begin(model, "/v1/completions", body, result);
  });
}

quintet_status quintet_stream(quintet_model* model, const char* input, const char* options,
                              quintet_result** result) {
  return guarded([&] {
    Json body = generation(options);
    check_is(body, "n", 1, "quintet_generate() gives several answers");
    body["prompt"] = array_of(&input, 1, "input");
    body["stream"] = true;
    return begin(model, "/v1/completions", body, result);
  });
}

quintet_status quintet_score(quintet_model* model, const char* const* inputs,
                             const char* const* targets, size_t count, const char* options,
                             quintet_result** result) {
  return guarded([&] {
    Json body = fields_of(options);
    body["prompt"] = array_of(inputs, count, "inputs");
    body["target"] = array_of(targets, count, "targets");
    return begin(model, "/v1/score", body, result);
  });
}

quintet_status quintet_embed(quintet_model* model, const char* const* inputs, size_t count,
                             const char* options, quintet_result** result) {
  return guarded([&] {
    Json body = fields_of(options);
    check_is(body, "encoding_format", "float", "quintet_values() gives numbers");
    body["input"] = array_of(inputs, count, "inputs");
    return begin(model, "/v1/embeddings", body, result);
  });
}

quintet_status quintet_tokenize(quintet_model* model, const char* text, const char* options,
                                quintet_result** result) {
  return guarded([&] {
    check_given(text, "text");
    Json body = fields_of(options);
    body["prompt"] = text;
    return begin(model, "/tokenize", body, result);
  });
}

quintet_status quintet_detokenize(quintet_model* model, const int32_t* ids, size_t count,
                                  quintet_result** result) {
  return guarded([&] {
    if (count > 0) check_given(ids, "ids");
    const Json body = {{"tokens", std::vector<int32_t>(ids, ids + count)}};
    return begin(model, "/detokenize", body, result);
  });
}

quintet_status quintet_wait(quintet_result* result, double seconds) {
  return guarded([&] {
    check_given(result, "result");
    if (!result->model->wait(*result->call, seconds)) return QUINTET_WAITING;
    if (!result->is_read && !result->call->body.empty())
      read_answer(Json::parse(result->call->body), *result);
    result->is_read = true;
    return QUINTET_OK;
  });
}

quintet_status quintet_next(quintet_result* result, double seconds, const char** piece,
                            size_t* bytes) {
  return guarded([&] {
    check_given(result, "result");
    check_given(piece, "piece");
    *piece = nullptr;
    for (std::optional<std::string> event;;) {
      if (!result->model->next(*result->call, seconds, event)) return QUINTET_WAITING;
      if (!event) return QUINTET_END;
      result->piece = text_of(*event);
      if (result->piece.empty()) continue;
      *piece = result->piece.c_str();
      if (bytes != nullptr) *bytes = result->piece.size();
      return QUINTET_OK;
    }
  });
}

void quintet_free(quintet_result* result) {
  if (result == nullptr) return;
  static_cast<void>(guarded([&] {
    result->model->cancel(*result->call);
    return QUINTET_OK;
  }));
  delete result;
}

size_t quintet_count(const quintet_result* result) {
  return result == nullptr ? 0 : std::max(result->texts.size(), result->values.size());
}

const char* quintet_text(const quintet_result* result, size_t index, size_t* bytes) {
  if (result == nullptr || index >= result->texts.size()) return nullptr;
  if (bytes != nullptr) *bytes = result->texts[index].size();
  return result->texts[index].c_str();
}

const float* quintet_values(const quintet_result* result, size_t index, size_t* rows,
                            size_t* width) {
  if (result == nullptr || index >= result->values.size()) return nullptr;
  const quintet_result::Values& values = result->values[index];
  if (rows != nullptr) *rows = values.rows;
  if (width != nullptr) *width = values.width;
  return values.numbers.data();
}

const int32_t* quintet_ids(const quintet_result* result, size_t* count) {
  if (result == nullptr) return nullptr;
  if (count != nullptr) *count = result->ids.size();
  return result->ids.data();
}

const char* quintet_json(const quintet_result* result) {
  return result != nullptr && !result->call->body.empty() && result->is_read
             ? result->call->body.c_str()
             : nullptr;
}

quintet_status quintet_open_batches(const char* const* flags, quintet_batches** batches) {
  return guarded([&] {
    check_given(batches, "batches");
    *batches = nullptr;
    std::vector<std::string> arguments = list_of(flags);
    arguments.insert(arguments.begin(), {"data", "batches"});
    std::unique_ptr<quintet_batches> made(new quintet_batches{Worker(arguments), {}, {}, {}, {}});
    read_features(*made);
    *batches = made.release();
    return QUINTET_OK;
  });
}

size_t quintet_features(const quintet_batches* batches, const quintet_feature** features) {
  if (batches == nullptr) return 0;
  if (features != nullptr) *features = batches->features.data();
  return batches->features.size();
}

quintet_status quintet_next_batch(quintet_batches* batches, double seconds, void* const* arrays,
                                  int64_t* rows) {
  return guarded([&] {
    check_given(batches, "batches");
    check_given(arrays, "arrays");
    batches->worker.check_process();
    FrameHead head;
    if (!batches->worker.read_head(head, seconds))
      return batches->worker.done() ? QUINTET_END : QUINTET_WAITING;
    const size_t bytes = std::accumulate(batches->bytes.begin(), batches->bytes.end(), size_t{0});
    QT_CHECK_AS(ExitCode::kEnvironment, head.bytes == bytes,
                "batch {}: expected {} bytes, as of the first batch, found {}", head.request, bytes,
                head.bytes);
    for (size_t i = 0; i < batches->bytes.size(); ++i)
      batches->worker.read_body(arrays[i], batches->bytes[i]);
    if (rows != nullptr) *rows = head.status;
    return QUINTET_OK;
  });
}

void quintet_close_batches(quintet_batches* batches) { delete batches; }

}  // extern "C"
