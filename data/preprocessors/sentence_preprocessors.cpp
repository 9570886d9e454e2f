#include "data/preprocessors/sentence_preprocessors.h"

#include <algorithm>
#include <cmath>

#include "data/examples/random.h"
#include "data/preprocessors/strings.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

using Words = std::vector<std::string>;

double between(double low, double high, Random& random) {
  return low + (high - low) * random.uniform();
}

std::string join_range(const Words& words, int64_t start, int64_t end) {
  return join(
      std::span(words).subspan(static_cast<size_t>(start), static_cast<size_t>(end - start)), " ");
}

Example pair(std::string_view first_key, std::string first, std::string_view second_key,
             std::string second) {
  Example out;
  out.set(first_key, std::move(first));
  out.set(second_key, std::move(second));
  return out;
}

}  // namespace

StreamPtr SplitTextToWords::apply(StreamPtr input, const PreprocessContext&) const {
  return map_stream(std::move(input), [*this](Example& example) {
    Words words = split_words(example.text(text_key));
    if (static_cast<int64_t>(words.size()) < min_num_words) return false;
    example.set("words", std::move(words));
    return true;
  });
}

StreamPtr RandomSplitText::apply(StreamPtr input, const PreprocessContext&) const {
  QT_CHECK(min_words_per_segment > 0 && max_words_per_segment >= min_words_per_segment,
           "random_split_text: segments of {} to {} words", min_words_per_segment,
           max_words_per_segment);
  return flat_map_stream(std::move(input), [*this](Example&& in, std::vector<Example>& out) {
    const Words words = split_words(in.text(text_key));
    Random random(take_key(in));
    auto end = static_cast<int64_t>(words.size());
    int64_t start = 0;
    if (max_words_total > 0) {
      const int64_t chunks = std::max<int64_t>(1, (end + max_words_total - 1) / max_words_total);
      start = max_words_total * random.below(chunks);
      end = std::min(end, start + max_words_total);
    }
    const auto length = static_cast<int64_t>(
        std::exp(between(std::log(static_cast<double>(min_words_per_segment)),
                         std::log(static_cast<double>(max_words_per_segment)), random)));
    for (; start < end; start += length)
      out.emplace_back().set(text_key, join_range(words, start, std::min(end, start + length)));
  });
}

StreamPtr FillInTheBlank::apply(StreamPtr input, const PreprocessContext& context) const {
  SplitTextToWords to_words;
  to_words.text_key = text_key;
  return flat_map_stream(
      to_words.apply(std::move(input), context), [*this](Example&& in, std::vector<Example>& out) {
        const Words& words = in.texts("words");
        const size_t size = words.size();
        Random random(take_key(in));
        const double p_break =
            std::exp(between(-std::log(static_cast<double>(size) + 2), -std::log(2.0), random));
        std::vector<bool> breaks(size);  // before a word
        for (size_t i = 1; i < size; ++i) breaks[i] = random.uniform() < p_break;
        if (std::find(breaks.begin(), breaks.end(), true) == breaks.end())
          breaks[1 + static_cast<size_t>(random.below(static_cast<int64_t>(size) - 1))] = true;
        std::string texts[2];
        size_t part = 1;  // the first piece is the second text's
        for (size_t i = 0; i < size; ++i) {
          if (i > 0 && breaks[i]) part = 1 - part;
          texts[part] += " " + words[i];
          if (i == 0 || breaks[i]) texts[1 - part] += " X";
        }
        for (std::string& text : texts) text.erase(0, 1);
        for (size_t i : {0, 1})
          out.push_back(pair("inputs", label + texts[i], "targets", texts[1 - i]));
      });
}

StreamPtr FillInTheBlankSized::apply(StreamPtr input, const PreprocessContext& context) const {
  std::vector<int64_t> bins = size_bins;
  std::sort(bins.begin(), bins.end());
  QT_CHECK(!bins.empty() && bins.front() > 0,
           "fill_in_the_blank_sized: size_bins must be positive numbers");
  SplitTextToWords to_words;
  to_words.text_key = text_key;
  to_words.min_num_words = std::max<int64_t>(2, bins.front());
  return map_stream(to_words.apply(std::move(input), context), [*this, bins](Example& example) {
    const Words& words = example.texts("words");
    const auto count = static_cast<int64_t>(words.size());
    Random random(take_key(example));
    const int64_t most = std::min(count, bins.back());
    const int64_t size = bins.front() + random.below(std::max<int64_t>(1, most - bins.front()));
    const int64_t bin = *std::min_element(bins.begin(), bins.end(), [size](int64_t a, int64_t b) {
      return std::abs(a - size) < std::abs(b - size);
    });
    const int64_t start = random.below(count - size + 1), end = start + size;
    const std::string text = strip(join_range(words, 0, start) + fmt::format(" _{}_ ", bin) +
                                   join_range(words, end, count));
    example.items() =
        pair("inputs", strip(label + text), "targets", join_range(words, start, end)).items();
    return true;
  });
}

StreamPtr NeighboringPairs::apply(StreamPtr input, const PreprocessContext&) const {
  static const RE2 sentence(R"(([^.!?]*)([.!?]*))");
  return flat_map_stream(std::move(input), [*this](Example&& in, std::vector<Example>& out) {
    for (const std::string& line : split(in.text(text_key), "\n")) {
      // Sentences end after marks; what follows the last mark is one, too, be it empty.
      Words sentences;
      re2::StringPiece rest(line);
      std::string text, marks;
      do {
        RE2::Consume(&rest, sentence, &text, &marks);
        sentences.push_back(strip(text + marks));
      } while (!marks.empty());
      for (size_t i = 0; i + 1 < sentences.size(); i += reuse_sentences ? 1 : 2)
        if (!sentences[i].empty() && !sentences[i + 1].empty())
          out.push_back(pair("first", sentences[i], "second", sentences[i + 1]));
    }
  });
}

StreamPtr NextSentencePrediction::apply(StreamPtr input, const PreprocessContext& context) const {
  NeighboringPairs pairs;
  pairs.text_key = text_key;
  pairs.reuse_sentences = reuse_sentences;
  return group_stream(
      pairs.apply(std::move(input), context), buffer_size,
      [*this](std::vector<Example>& in, std::vector<Example>& out) {
        const std::string first_label = label_sentences ? "sentence1: " : "";
        const std::string second_label = label_sentences ? "sentence2: " : "";
        const Permutation order(take_key(in.front()), static_cast<int64_t>(in.size()));
        for (size_t i = 0; i + 1 < in.size(); i += 2) {
          Example* both[] = {&in[static_cast<size_t>(order(static_cast<int64_t>(i)))],
                             &in[static_cast<size_t>(order(static_cast<int64_t>(i + 1)))]};
          const bool next = Random(take_key(*both[0])).uniform() < p_neighbors;
          for (size_t k : {0, 1})
            out.push_back(pair("inputs",
                               strip(label + first_label + both[k]->text("first") + " " +
                                     second_label + both[next ? k : 1 - k]->text("second")),
                               "targets", next ? "next" : "not_next"));
        }
      });
}

}  // namespace quintet::data
