#pragma once
// Sentences in two languages, in the forms in which WMT publishes them. Files may be compressed (*.gz).
//
//   read_columns("europarl-v9.de-en.tsv.gz", "\t", [](const std::string& key, const Sentences& pair) { .. });

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace quintet::data {

using Sentences = std::map<std::string, std::string>;  // by language
/// `key`: of the pair in its file.
using TakeSentences = std::function<void(const std::string& key, const Sentences& sentences)>;

/// Line n of one file and line n of the other; in files *.sgm, the segments. The key is `prefix` and n. Throws kData for files of
/// different lengths and for text that is not UTF-8.
void read_parallel(const std::string& first, const std::string& second,
                   const std::pair<std::string, std::string>& languages, const std::string& prefix,
                   const TakeSentences& take);
/// Two columns in a file NAME.XX-YY[.tsv], XX and YY their languages unless they are given. A line of a .tsv with another number of columns is passed
/// over; of another file it is an error (kData).
void read_columns(const std::string& file, const std::string& separator, const TakeSentences& take,
                  std::optional<std::pair<std::string, std::string>> languages = {});
/// Lines of an id, a number, Czech and English (else kData), but for those of the blocks `left_out`. The key is the file's name and n.
void read_czeng(const std::string& file, const std::set<std::string>& left_out,
                const TakeSentences& take);
/// The blocks of CzEng 1.6 that 1.7 is without, of the script that makes it.
std::set<std::string> czeng17_left_out(const std::string& script);
/// English and Hindi, the fourth and fifth of five columns; other lines are passed over.
void read_hindencorp(const std::string& file, const TakeSentences& take);
/// Translation units of an XML file. Throws kData where it is not well-formed.
void read_tmx(const std::string& file, const TakeSentences& take);

}  // namespace quintet::data
