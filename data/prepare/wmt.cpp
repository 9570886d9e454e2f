// WMT's translations of 2013 to 2019, and the choice of them that Tensor2Tensor has. Source of the forms: tfds 4.9,
// translate/wmt.py, wmt13.py to wmt19.py and wmt_t2t.py.
#include <fnmatch.h>

#include <algorithm>
#include <set>

#include "data/metrics/text.h"
#include "data/prepare/parallel_text.h"
#include "data/prepare/prepare.h"
#include "runtime/base/check.h"

namespace quintet::data {
namespace {

namespace fs = std::filesystem;

/// Pairs of sentences that several years have: two files, or one with both languages. In paths, {src} is the source
/// language, and {0} and {1} are both languages in the order of the alphabet.
struct Subset {
  std::string name, target;
  std::set<std::string> sources;
  std::string
      archive;  // the published file without .tgz, .tar or .zip; empty: the paths are published files
  std::vector<std::string> paths;
};

const std::vector<Subset> kSubsets = {
    // Of training.
    {"commoncrawl",
     "en",
     {"cs", "de", "es", "fr", "ru"},
     "training-parallel-commoncrawl",
     {"commoncrawl.{src}-en.{src}", "commoncrawl.{src}-en.en"}},
    {"commoncrawl_frde", "de", {"fr"}, "", {"commoncrawl.fr", "commoncrawl.de"}},
    {"czeng_10", "en", {"cs"}, "data-plaintext-format.{n}", {"data.plaintext-format/??train"}},
    {"czeng_16", "en", {"cs"}, "data-plaintext-format.{n}", {"data.plaintext-format/??train"}},
    {"czeng_16pre", "en", {"cs"}, "", {"czeng16pre.deduped-ignoring-sections.txt"}},
    {"czeng_17", "en", {"cs"}, "data-plaintext-format.{n}", {"data.plaintext-format/??train"}},
    {"dcep_v1", "en", {"lv"}, "dcep.lv-en.v1", {"dcep.en-lv/dcep.lv", "dcep.en-lv/dcep.en"}},
    {"europarl_v7",
     "en",
     {"cs", "de", "es", "fr"},
     "training-parallel-europarl-v7",
     {"training/europarl-v7.{src}-en.{src}", "training/europarl-v7.{src}-en.en"}},
    {"europarl_v7_frde", "de", {"fr"}, "", {"europarl-v7.fr", "europarl-v7.de"}},
    {"europarl_v8_16",
     "en",
     {"fi", "ro"},
     "training-parallel-ep-v8",
     {"training-parallel-ep-v8/europarl-v8.{src}-en.{src}",
      "training-parallel-ep-v8/europarl-v8.{src}-en.en"}},
    {"europarl_v8_18",
     "en",
     {"et", "fi"},
     "training-parallel-ep-v8",
     {"training/europarl-v8.{src}-en.{src}", "training/europarl-v8.{src}-en.en"}},
    {"europarl_v9", "en", {"cs", "de", "fi", "lt"}, "", {"europarl-v9.{src}-en.tsv"}},
    {"gigafren",
     "en",
     {"fr"},
     "training-giga-fren",
     {"giga-fren.release2.fixed.fr", "giga-fren.release2.fixed.en"}},
    {"hindencorp_01", "en", {"hi"}, "", {"hindencorp0.1"}},
    {"leta_v1", "en", {"lv"}, "leta.v1", {"LETA-lv-en/leta.lv", "LETA-lv-en/leta.en"}},
    {"multiun",
     "en",
     {"es", "fr"},
     "training-parallel-un",
     {"un/undoc.2000.{src}-en.{src}", "un/undoc.2000.{src}-en.en"}},
    {"newscommentary_v8",
     "en",
     {"cs", "de", "es", "fr", "ru"},
     "training-parallel-nc-v8",
     {"training/news-commentary-v8.{src}-en.{src}", "training/news-commentary-v8.{src}-en.en"}},
    {"newscommentary_v9",
     "en",
     {"cs", "de", "fr", "ru"},
     "training-parallel-nc-v9",
     {"training/news-commentary-v9.{src}-en.{src}", "training/news-commentary-v9.{src}-en.en"}},
    {"newscommentary_v10",
     "en",
     {"cs", "de", "fr", "ru"},
     "training-parallel-nc-v10",
     {"news-commentary-v10.{src}-en.{src}", "news-commentary-v10.{src}-en.en"}},
    {"newscommentary_v11",
     "en",
     {"cs", "de", "ru"},
     "training-parallel-nc-v11",
     {"training-parallel-nc-v11/news-commentary-v11.{src}-en.{src}",
      "training-parallel-nc-v11/news-commentary-v11.{src}-en.en"}},
    {"newscommentary_v12",
     "en",
     {"cs", "de", "ru", "zh"},
     "training-parallel-nc-v12",
     {"training/news-commentary-v12.{src}-en.{src}", "training/news-commentary-v12.{src}-en.en"}},
    {"newscommentary_v13",
     "en",
     {"cs", "de", "ru", "zh"},
     "training-parallel-nc-v13",
     {"training-parallel-nc-v13/news-commentary-v13.{src}-en.{src}",
      "training-parallel-nc-v13/news-commentary-v13.{src}-en.en"}},
    {"newscommentary_v14",
     "en",
     {"cs", "de", "kk", "ru", "zh"},
     "",
     {"news-commentary-v14.{0}-{1}.tsv"}},
    {"newscommentary_v14_frde", "de", {"fr"}, "", {"news-commentary-v14.de-fr.tsv"}},
    {"onlinebooks_v1",
     "en",
     {"lv"},
     "books.lv-en.v1",
     {"farewell/farewell.lv", "farewell/farewell.en"}},
    {"paracrawl_v1",
     "en",
     {"cs", "de", "et", "fi", "ru"},
     "paracrawl-release1.en-{src}.zipporah0-dedup-clean",
     {"paracrawl-release1.en-{src}.zipporah0-dedup-clean.{src}",
      "paracrawl-release1.en-{src}.zipporah0-dedup-clean.en"}},
    {"paracrawl_v1_ru",
     "en",
     {"ru"},
     "paracrawl-release1.en-ru.zipporah0-dedup-clean",
     {"paracrawl-release1.en-ru.zipporah0-dedup-clean.ru",
      "paracrawl-release1.en-ru.zipporah0-dedup-clean.en"}},
    {"paracrawl_v3", "en", {"cs", "de", "fi", "lt"}, "", {"en-{src}.bicleaner07.tmx"}},
    // TFDS takes the German file for the French one; what it prepares is kept.
    {"paracrawl_v3_frde", "de", {"fr"}, "", {"de-fr.bicleaner07.de", "de-fr.bicleaner07.fr"}},
    {"rapid_2016",
     "en",
     {"de", "et", "fi"},
     "rapid2016",
     {"rapid2016.{0}-{1}.{src}", "rapid2016.{0}-{1}.en"}},
    {"rapid_2016_ltfi", "en", {"fi", "lt"}, "rapid2016.en-{src}.tmx", {"rapid2016.en-{src}.tmx"}},
    {"rapid_2019", "en", {"de"}, "rapid2019.de-en", {"rapid2019.de-en.de", "rapid2019.de-en.en"}},
    {"setimes_2", "en", {"ro", "tr"}, "", {"en-{src}.tmx"}},
    {"uncorpus_v1",
     "en",
     {"ru", "zh"},
     "UNv1.0.en-{src}",
     {"en-{src}/UNv1.0.en-{src}.{src}", "en-{src}/UNv1.0.en-{src}.en"}},
    {"wikiheadlines_fi", "en", {"fi"}, "wiki-titles", {"wiki/fi-en/titles.fi-en"}},
    {"wikiheadlines_hi", "en", {"hi"}, "wiki-titles", {"wiki/hi-en/wiki-titles.hi-en"}},
    {"wikiheadlines_ru", "en", {"ru"}, "wiki-titles", {"wiki/ru-en/wiki.ru-en"}},
    {"wikititles_v1",
     "en",
     {"cs", "de", "fi", "gu", "kk", "lt", "ru", "zh"},
     "",
     {"wikititles-v1.{src}-en.tsv"}},
    {"yandexcorpus", "en", {"ru"}, "1mcorpus", {"corpus.en_ru.1m.ru", "corpus.en_ru.1m.en"}},
    {"casia2015", "en", {"zh"}, "casia2015", {"casia2015/*_c[hn].txt", "casia2015/*_en.txt"}},
    {"casict2011", "en", {"zh"}, "casict2011", {"casict2011/*_c[hn].txt", "casict2011/*_en.txt"}},
    {"casict2015", "en", {"zh"}, "casict2015", {"casict2015/*_c[hn].txt", "casict2015/*_en.txt"}},
    {"datum2015", "en", {"zh"}, "datum2015", {"datum2015/*_c[hn].txt", "datum2015/*_en.txt"}},
    {"datum2017", "en", {"zh"}, "datum2017", {"datum2017/*_c[hn].txt", "datum2017/*_en.txt"}},
    {"neu2017", "en", {"zh"}, "neu2017", {"neu2017/*_c[hn].txt", "neu2017/*_en.txt"}},
    // Of development and tests.
    {"euelections_dev2019",
     "de",
     {"fr"},
     "dev",
     {"dev/euelections_dev2019.fr-de.src.fr", "dev/euelections_dev2019.fr-de.tgt.de"}},
    {"newsdev2014", "en", {"hi"}, "dev", {"dev/newsdev2014.hi", "dev/newsdev2014.en"}},
    {"newsdev2015",
     "en",
     {"fi"},
     "dev",
     {"dev/newsdev2015-fien-src.{src}.sgm", "dev/newsdev2015-fien-ref.en.sgm"}},
    {"newsdiscussdev2015",
     "en",
     {"fr"},
     "dev",
     {"dev/newsdiscussdev2015-{src}en-src.{src}.sgm", "dev/newsdiscussdev2015-{src}en-ref.en.sgm"}},
    {"newsdev2016",
     "en",
     {"ro", "tr"},
     "dev",
     {"dev/newsdev2016-{src}en-src.{src}.sgm", "dev/newsdev2016-{src}en-ref.en.sgm"}},
    {"newsdev2017",
     "en",
     {"lv", "zh"},
     "dev",
     {"dev/newsdev2017-{src}en-src.{src}.sgm", "dev/newsdev2017-{src}en-ref.en.sgm"}},
    {"newsdev2018",
     "en",
     {"et"},
     "dev",
     {"dev/newsdev2018-{src}en-src.{src}.sgm", "dev/newsdev2018-{src}en-ref.en.sgm"}},
    {"newsdev2019",
     "en",
     {"gu", "kk", "lt"},
     "dev",
     {"dev/newsdev2019-{src}en-src.{src}.sgm", "dev/newsdev2019-{src}en-ref.en.sgm"}},
    {"newsdiscusstest2015",
     "en",
     {"fr"},
     "dev",
     {"dev/newsdiscusstest2015-{src}en-src.{src}.sgm",
      "dev/newsdiscusstest2015-{src}en-ref.en.sgm"}},
    {"newssyscomb2009",
     "en",
     {"cs", "de", "es", "fr"},
     "dev",
     {"dev/newssyscomb2009.{src}", "dev/newssyscomb2009.en"}},
    {"newstest2008",
     "en",
     {"cs", "de", "es", "fr"},
     "dev",
     {"dev/news-test2008.{src}", "dev/news-test2008.en"}},
    {"newstest2009",
     "en",
     {"cs", "de", "es", "fr"},
     "dev",
     {"dev/newstest2009.{src}", "dev/newstest2009.en"}},
    {"newstest2010",
     "en",
     {"cs", "de", "es", "fr"},
     "dev",
     {"dev/newstest2010.{src}", "dev/newstest2010.en"}},
    {"newstest2011",
     "en",
     {"cs", "de", "es", "fr"},
     "dev",
     {"dev/newstest2011.{src}", "dev/newstest2011.en"}},
    {"newstest2012",
     "en",
     {"cs", "de", "es", "fr", "ru"},
     "dev",
     {"dev/newstest2012.{src}", "dev/newstest2012.en"}},
    {"newstest2013",
     "en",
     {"cs", "de", "es", "fr", "ru"},
     "dev",
     {"dev/newstest2013.{src}", "dev/newstest2013.en"}},
    {"newstest2014",
     "en",
     {"cs", "de", "es", "fr", "hi", "ru"},
     "dev",
     {"dev/newstest2014-{src}en-src.{src}.sgm", "dev/newstest2014-{src}en-ref.en.sgm"}},
    {"newstest2015",
     "en",
     {"cs", "de", "fi", "ru"},
     "dev",
     {"dev/newstest2015-{src}en-src.{src}.sgm", "dev/newstest2015-{src}en-ref.en.sgm"}},
    {"newstest2016",
     "en",
     {"cs", "de", "fi", "ro", "ru", "tr"},
     "dev",
     {"dev/newstest2016-{src}en-src.{src}.sgm", "dev/newstest2016-{src}en-ref.en.sgm"}},
    {"newstestB2016",
     "en",
     {"fi"},
     "dev",
     {"dev/newstestB2016-enfi-ref.{src}.sgm", "dev/newstestB2016-enfi-src.en.sgm"}},
    {"newstest2017",
     "en",
     {"cs", "de", "fi", "lv", "ru", "tr", "zh"},
     "dev",
     {"dev/newstest2017-{src}en-src.{src}.sgm", "dev/newstest2017-{src}en-ref.en.sgm"}},
    {"newstestB2017",
     "en",
     {"fi"},
     "dev",
     {"dev/newstestB2017-fien-src.fi.sgm", "dev/newstestB2017-fien-ref.en.sgm"}},
    {"newstest2018",
     "en",
     {"cs", "de", "et", "fi", "ru", "tr", "zh"},
     "dev",
     {"dev/newstest2018-{src}en-src.{src}.sgm", "dev/newstest2018-{src}en-ref.en.sgm"}}};

struct Year {
  std::string name;
  std::vector<std::pair<std::string, std::string>> pairs;  // those whose every subset is above
  std::vector<std::pair<std::string, std::vector<std::string>>> splits;
};

const std::vector<Year> kYears = {
    {"wmt13_translate",
     {{"cs", "en"}, {"de", "en"}, {"es", "en"}, {"fr", "en"}, {"ru", "en"}},
     {{"train",
       {"europarl_v7", "commoncrawl", "multiun", "newscommentary_v8", "gigafren",
        "wikiheadlines_ru", "yandexcorpus", "czeng_10"}},
      {"validation",
       {"newstest2012", "newstest2011", "newstest2010", "newstest2009", "newstest2008",
        "newssyscomb2009"}},
      {"test", {"newstest2013"}}}},
    {"wmt14_translate",
     {{"cs", "en"}, {"de", "en"}, {"fr", "en"}, {"hi", "en"}, {"ru", "en"}},
     {{"train",
       {"europarl_v7", "commoncrawl", "multiun", "newscommentary_v9", "gigafren", "yandexcorpus",
        "wikiheadlines_hi", "wikiheadlines_ru", "hindencorp_01", "czeng_10"}},
      {"validation", {"newsdev2014", "newstest2013"}},
      {"test", {"newstest2014"}}}},
    {"wmt15_translate",
     {{"cs", "en"}, {"de", "en"}, {"fi", "en"}, {"fr", "en"}, {"ru", "en"}},
     {{"train",
       {"europarl_v7", "europarl_v8_16", "commoncrawl", "multiun", "newscommentary_v10", "gigafren",
        "czeng_10", "yandexcorpus", "wikiheadlines_fi", "wikiheadlines_ru"}},
      {"validation", {"newsdev2015", "newsdiscussdev2015", "newstest2014"}},
      {"test", {"newstest2015", "newsdiscusstest2015"}}}},
    {"wmt16_translate",
     {{"cs", "en"}, {"de", "en"}, {"fi", "en"}, {"ro", "en"}, {"ru", "en"}, {"tr", "en"}},
     {{"train",
       {"europarl_v7", "europarl_v8_16", "commoncrawl", "newscommentary_v11", "czeng_16pre",
        "yandexcorpus", "wikiheadlines_fi", "wikiheadlines_ru", "setimes_2"}},
      {"validation", {"newsdev2016", "newstest2015"}},
      {"test", {"newstest2016", "newstestB2016"}}}},
    {"wmt17_translate",
     {{"cs", "en"},
      {"de", "en"},
      {"fi", "en"},
      {"lv", "en"},
      {"ru", "en"},
      {"tr", "en"},
      {"zh", "en"}},
     {{"train", {"europarl_v7",    "europarl_v8_16",   "commoncrawl",      "newscommentary_v12",
                 "yandexcorpus",   "wikiheadlines_fi", "wikiheadlines_ru", "setimes_2",
                 "uncorpus_v1",    "rapid_2016",       "leta_v1",          "dcep_v1",
                 "onlinebooks_v1", "czeng_16",         "casia2015",        "casict2011",
                 "casict2015",     "datum2015",        "datum2017",        "neu2017"}},
      {"validation", {"newsdev2017", "newstest2016", "newstestB2016"}},
      {"test", {"newstest2017", "newstestB2017"}}}},
    {"wmt18_translate",
     {{"cs", "en"},
      {"de", "en"},
      {"et", "en"},
      {"fi", "en"},
      {"ru", "en"},
      {"tr", "en"},
      {"zh", "en"}},
     {{"train",
       {"europarl_v7", "europarl_v8_18", "paracrawl_v1", "commoncrawl", "newscommentary_v13",
        "yandexcorpus", "wikiheadlines_fi", "wikiheadlines_ru", "setimes_2", "uncorpus_v1",
        "rapid_2016", "czeng_17", "casia2015", "casict2011", "casict2015", "datum2015", "datum2017",
        "neu2017"}},
      {"validation", {"newsdev2018", "newstest2017", "newstestB2017"}},
      {"test", {"newstest2018"}}}},
    {"wmt19_translate",
     {{"cs", "en"},
      {"de", "en"},
      {"fi", "en"},
      {"gu", "en"},
      {"kk", "en"},
      {"lt", "en"},
      {"ru", "en"},
      {"zh", "en"},
      {"fr", "de"}},
     {{"train", {"europarl_v9",      "europarl_v7_frde",   "paracrawl_v3",
                 "paracrawl_v1_ru",  "paracrawl_v3_frde",  "commoncrawl",
                 "commoncrawl_frde", "newscommentary_v14", "newscommentary_v14_frde",
                 "yandexcorpus",     "wikititles_v1",      "uncorpus_v1",
                 "rapid_2016_ltfi",  "rapid_2019",         "czeng_17",
                 "casia2015",        "casict2011",         "casict2015",
                 "datum2015",        "datum2017",          "neu2017"}},
      {"validation", {"euelections_dev2019", "newsdev2019", "newstest2018"}}}},
    {"wmt_t2t_translate",
     {{"de", "en"}},
     {{"train", {"europarl_v7", "commoncrawl", "newscommentary_v13"}},
      {"validation", {"newstest2013"}},
      {"test", {"newstest2014"}}}}};

std::string with_languages(std::string text, const std::string& source, const std::string& target) {
  const auto [first, second] = std::minmax(source, target);
  for (const auto& [mark, language] :
       {std::pair("{src}", source), std::pair("{0}", first), std::pair("{1}", second)})
    for (size_t at; (at = text.find(mark)) != std::string::npos;)
      text.replace(at, std::string_view(mark).size(), language);
  return text;
}

constexpr const char* kCzeng17 = "convert_czeng16_to_17.pl";

/// FROM/ARCHIVE/PATH or FROM/PATH, compressed or not.
std::string found_file(const fs::path& from, const std::string& archive, const std::string& path) {
  for (const fs::path& folder : {from / archive, from})
    for (const char* end : {"", ".gz"})
      if (const fs::path file = folder / (path + end); fs::is_regular_file(file))
        return file.string();
  fail(ExitCode::kData,
       "{}: is missing, and so are {} and both with .gz; --from names the folder in which {} "
       "unpacked",
       (from / archive / path).string(), (from / path).string(),
       archive.empty() ? "the published files are" : fmt::format("{} was", archive));
}

/// Likewise of a path whose file name may be a pattern, in order.
std::vector<std::string> found_files(const fs::path& from, const std::string& archive,
                                     const std::string& path) {
  if (path.find_first_of("*?") == std::string::npos) return {found_file(from, archive, path)};
  std::vector<std::string> files;
  for (const fs::path& folder : {from / archive, from}) {
    const fs::path pattern = folder / path;
    std::error_code missing;
    if (files.empty())
      for (const auto& entry : fs::directory_iterator(pattern.parent_path(), missing)) {
        std::string name = entry.path().filename().string();
        if (name.ends_with(".gz")) name.resize(name.size() - 3);
        if (::fnmatch(pattern.filename().c_str(), name.c_str(), 0) == 0)
          files.push_back(entry.path().string());
      }
  }
  if (files.empty()) found_file(from, archive, path);  // says what is missing
  std::sort(files.begin(), files.end());
  return files;
}

void read_subset_of_czeng(const Subset& subset, const fs::path& from, const TakeSentences& take) {
  std::set<std::string> files, left_out;
  for (int n = 0; n < 10; ++n)
    for (const std::string& file :
         found_files(from, fmt::format("data-plaintext-format.{}", n), subset.paths.front()))
      files.insert(file);
  if (subset.name == "czeng_17") left_out = czeng17_left_out(found_file(from, kCzeng17, kCzeng17));
  for (const std::string& file : files) read_czeng(file, left_out, take);
}

void generate(const Subset& subset, const std::string& source, const fs::path& from,
              const TfdsWriter::Add& add) {
  std::vector<std::vector<std::string>> files;  // of each path
  const auto take = [&](const std::string& key, const Sentences& sentences) {
    Example example;
    for (const std::string& language : {source, subset.target}) {
      const auto found = sentences.find(language);
      QT_CHECK_AS(ExitCode::kData, found != sentences.end() && sentences.size() == 2,
                  "{}: {}: has no pair of '{}' and '{}'", subset.name, key, source, subset.target);
      if (found->second.empty()) return;
      example.set(language, found->second);
    }
    add(fmt::format("{}/{}", subset.name, key), example);
  };
  if (subset.archive.ends_with("{n}")) return read_subset_of_czeng(subset, from, take);
  for (const std::string& path : subset.paths)
    files.push_back(found_files(from, with_languages(subset.archive, source, subset.target),
                                with_languages(path, source, subset.target)));
  const std::string &path = subset.paths.front(), &file = files[0][0];
  if (files.size() == 2) {
    QT_CHECK_AS(ExitCode::kData, files[0].size() == files[1].size(),
                "{}: {} files are {}, {} are {}", (from / subset.archive).string(), files[0].size(),
                path, files[1].size(), subset.paths[1]);
    for (size_t i = 0; i < files[0].size(); ++i)
      read_parallel(files[0][i], files[1][i], {source, subset.target},
                    subset.name.ends_with("_frde") ? "" : fmt::format("{}/", i), take);
  } else if (path.ends_with(".tmx")) {
    read_tmx(file, take);
  } else if (subset.name == "hindencorp_01") {
    read_hindencorp(file, take);
  } else if (subset.name == "czeng_16pre") {
    read_columns(file, "\t", take, std::pair("en", "cs"));
  } else {
    read_columns(file, path.ends_with(".tsv") ? "\t" : "|||", take);
  }
}

ArchiveDataset dataset_of(const Year& year, const std::string& source, const std::string& target) {
  ArchiveDataset made{.dataset = {.name = year.name,
                                  .config = source + "-" + target,
                                  .version = "1.0.0",
                                  .features = tfds::translation({source, target})},
                      .older_versions = {},
                      .files = "",
                      .splits = {}};
  std::set<std::string> archives;
  for (const auto& [split, names] : year.splits) {
    std::vector<const Subset*> used;
    for (const Subset& subset : kSubsets)
      if (std::ranges::count(names, subset.name) > 0 && subset.target == target &&
          subset.sources.contains(source))
        used.push_back(&subset);
    for (const Subset* subset : used) {
      if (subset->name == "czeng_17") archives.insert(kCzeng17);
      if (subset->archive.empty())
        for (const std::string& path : subset->paths)
          archives.insert(with_languages(path, source, target) + ".gz");
      else
        archives.insert(with_languages(subset->archive, source, target) + "/");
    }
    made.splits.push_back({split, [=](const fs::path& from, const TfdsWriter::Add& add) {
                             for (const Subset* subset : used) generate(*subset, source, from, add);
                           }});
  }
  made.files = fmt::format("{}", fmt::join(archives, ", "));
  return made;
}

}  // namespace

std::vector<ArchiveDataset> wmt_datasets() {
  std::vector<ArchiveDataset> made;
  for (const Year& year : kYears)
    for (const auto& [source, target] : year.pairs)
      made.push_back(dataset_of(year, source, target));
  return made;
}

}  // namespace quintet::data
