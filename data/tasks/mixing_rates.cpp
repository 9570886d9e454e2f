#include "data/tasks/mixing_rates.h"

#include <algorithm>
#include <cmath>

#include "data/tasks/cache_folder.h"
#include "runtime/base/check.h"
#include "runtime/base/formats/json.h"

namespace quintet::data {

double mixing_rate(double examples, const ExamplesRate& options) {
  double rate = examples * options.scale;
  if (options.maximum.value_or(0) > 0) rate = std::min(rate, *options.maximum);
  return options.temperature == 1 ? rate : std::pow(rate, 1 / options.temperature);
}

MixtureRate examples_rate(ExamplesRate options) {
  return [options](const ProviderPtr& part, StreamOptions stream) {
    QT_CHECK(part->has_end(options.split),
             "mixing rate of '{}': its split '{}' has no end, so its examples cannot be counted; "
             "give a number",
             part->name(), options.split);
    stream.split = options.split;
    return mixing_rate(static_cast<double>(part->contents(stream).examples), options);
  };
}

double characters_rate(const Provider& part, const StreamOptions& stream,
                       const CharactersRate& options) {
  const auto folder = find_cache(part.name(), stream.cache_dirs);
  QT_CHECK(folder.has_value(),
           "mixing_rate_num_characters of '{}': needs the statistics of its cache, and it is not "
           "cached in {}; make the cache with 'quintet cache --tasks={} --enable_char_counts'",
           part.name(),
           stream.cache_dirs.empty() ? "any directory (--seqio_additional_cache_dirs gives them)"
                                     : fmt::format("{}", fmt::join(stream.cache_dirs, ", ")),
           part.name());
  const auto file = cache_stats_file(*folder, "train");
  const Json stats = Json::read(file);
  QT_CHECK_AS(ExitCode::kData, stats.has(options.char_count_name),
              "{}: has no '{}'; make the cache with --enable_char_counts, which counts features of "
              "text and of SentencePiece's ids, and bind "
              "seqio.mixing_rate_num_characters.char_count_name to one's, such as 'targets_chars'",
              file.string(), options.char_count_name);
  const double count = stats[options.char_count_name].as_double();
  return options.temperature == 1 ? count : std::pow(count, 1 / options.temperature);
}

MixtureRate configured_rate(const std::string& name, const gin::Config& config) {
  return [name, &config](const ProviderPtr& part, const StreamOptions& stream) {
    return config.call_as<double>(
        name, {{"task", gin::to_value(part)}, {"options", gin::to_value(stream)}});
  };
}

MixtureRate rate_from(const gin::Value& value, const gin::Where& where) {
  if (const auto* function = value.get_if<gin::Callable>())
    return [function = *function, where](const ProviderPtr& part, const StreamOptions& stream) {
      return gin::as<double>(
          function({}, {{"task", gin::to_value(part)}, {"options", gin::to_value(stream)}}), where);
    };
  return gin::as<double>(value, where);
}

void register_mixing_rates(gin::Registry& r) {
  const auto by_examples = [](const gin::Arguments& a) {
    const auto rate = examples_rate({.maximum = a.get<std::optional<double>>("maximum"),
                                     .scale = a.get<double>("scale"),
                                     .temperature = a.get<double>("temperature"),
                                     .split = a.get_or<std::string>("split", "train")});
    return gin::Value(
        std::get<1>(rate)(a.get<ProviderPtr>("task"), a.get_or<StreamOptions>("options", {})));
  };
  // `task` and `options` (how it is read, from a cache or not) come from the mixture.
  const std::vector<gin::Param> params = {
      "task",         {"options", nullptr}, {"maximum", nullptr},
      {"scale", 1.0}, {"temperature", 1.0}, {"fallback_to_num_input_examples", true}};
  std::vector<gin::Param> with_split = params;
  with_split.emplace_back("split", "train");
  r.add("seqio.utils.mixing_rate_num_examples", with_split, by_examples);
  r.add("seqio.utils.mixing_rate_num_characters",
        {"task",
         {"options", nullptr},
         {"temperature", 1.0},
         {"char_count_name", CharactersRate().char_count_name}},
        [](const gin::Arguments& a) {
          return gin::Value(characters_rate(
              *a.get<ProviderPtr>("task"), a.get_or<StreamOptions>("options", {}),
              {a.get<double>("temperature"), a.get<std::string>("char_count_name")}));
        });
  for (const std::string name : {"mixing_rate_num_examples", "mixing_rate_num_characters"})
    r.add_alias("seqio." + name, "seqio.utils." + name);
  r.add("t5.data.utils.rate_num_examples", params, by_examples);
  r.add("t5.data.utils.rate_unsupervised", {"task", {"options", nullptr}, {"value", 1e6}},
        [](const gin::Arguments& a) { return gin::Value(a.get<double>("value")); });
  for (const char* name : {"rate_num_examples", "rate_unsupervised"})
    r.add_alias(std::string("t5.data.") + name, std::string("t5.data.utils.") + name);
}

}  // namespace quintet::data
