// SQuAD 1.1 and 2.0. Source of the forms: tfds 4.9, datasets/squad and question_answering/qa_utils.py.
#include <map>

#include "data/prepare/prepare.h"
#include "runtime/base/check.h"
#include "runtime/base/formats/json.h"

namespace quintet::data {
namespace {

namespace fs = std::filesystem;

tfds::Feature answers() {
  return tfds::sequence(
      tfds::dict({{"text", tfds::text()}, {"answer_start", tfds::scalar("int32")}}));
}

/// Appends the list NAME of {"text", "answer_start"}, if there is one, to "NAME/text" and "NAME/answer_start".
void add_answers(const Json& question, const std::string& name, Example& example) {
  if (!example.has(name + "/text")) {
    example.set(name + "/text", std::vector<std::string>{});
    example.set(name + "/answer_start", Tokens{});
  }
  auto& texts = std::get<std::vector<std::string>>(*example.find(name + "/text"));
  Tokens& starts = example.tokens(name + "/answer_start");
  if (!question.has(name)) return;
  for (const Json& answer : question[name].items()) {
    texts.push_back(answer["text"].as_string());
    starts.push_back(static_cast<int32_t>(answer["answer_start"].as_int()));
  }
}

/// The questions of a file, in its order. In version 1.1 answers to a question that comes twice are joined.
void generate(const fs::path& file, bool version_2, const TfdsWriter::Add& add) {
  std::vector<std::pair<std::string, Example>> questions;
  std::map<std::string, size_t> places;
  for (const Json& article : Json::read(file)["data"].items())
    for (const Json& paragraph : article["paragraphs"].items())
      for (const Json& question : paragraph["qas"].items()) {
        const std::string id = question["id"].as_string();
        const auto known = places.find(id);
        if (!version_2 && known != places.end()) {
          add_answers(question, "answers", questions[known->second].second);
          continue;
        }
        Example example;
        example.set("id", id);
        example.set("title", article.has("title") ? article["title"].as_string() : "");
        example.set("context", paragraph["context"].as_string());
        example.set("question", question["question"].as_string());
        add_answers(question, "answers", example);
        if (version_2) {
          example.set("is_impossible", int64_t{question["is_impossible"].as_bool()});
          add_answers(question, "plausible_answers", example);
        }
        places.emplace(id, questions.size());
        questions.emplace_back(id, std::move(example));
      }
  for (const auto& [id, example] : questions) add(id, example);
}

ArchiveDataset squad(const std::string& version, bool version_2) {
  std::vector<std::pair<std::string, tfds::Feature>> features = {{"id", tfds::scalar("string")},
                                                                 {"title", tfds::text()},
                                                                 {"context", tfds::text()},
                                                                 {"question", tfds::text()},
                                                                 {"answers", answers()}};
  if (version_2) {
    features.emplace_back("is_impossible", tfds::scalar("bool"));
    features.emplace_back("plausible_answers", answers());
  }
  ArchiveDataset made{.dataset = {.name = "squad",
                                  .config = version,
                                  .version = "3.0.0",
                                  .features = tfds::dict(std::move(features))},
                      .older_versions = {},
                      .files = fmt::format("train-{0}.json, dev-{0}.json", version),
                      .splits = {}};
  for (const auto& [split, part] : {std::pair("train", "train"), std::pair("validation", "dev")})
    made.splits.push_back({split, [=, file = fmt::format("{}-{}.json", part, version)](
                                      const fs::path& from, const TfdsWriter::Add& add) {
                             generate(archive_file(from, "squad", file), version_2, add);
                           }});
  return made;
}

}  // namespace

std::vector<ArchiveDataset> squad_datasets() { return {squad("v1.1", false), squad("v2.0", true)}; }

}  // namespace quintet::data
