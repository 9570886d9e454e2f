// gin files that define tasks: whatever they say, the registry is made or an error names what is wrong.
// No file is opened: sources open theirs when they are read.

#include "data/configurables/configurables.h"
#include "tests/fuzz/target.h"

namespace quintet {
namespace {

/// All that a gin file may name in data/.
struct Names : gin::Registry {
  Names() { data::register_data(*this); }
};

const gin::Registry& names() {
  static const Names registry;
  return registry;
}

}  // namespace

std::vector<std::string> testing::fuzz_seeds() {
  return {
      R"(seqio.ByteVocabulary.extra_ids = 20
seqio.Feature.vocabulary = @seqio.ByteVocabulary()
a/seqio.TextLineDataSource.split_to_filepattern = {'train': 'a*.txt', 'validation': ['b', 'c.gz']}
to/seqio.preprocessors.rekey.key_map = {'inputs': None, 'targets': 'text'}
t5.data.preprocessors.span_corruption.noise_density = 0.15
a/seqio.Task:
  name = 'a:b'
  source = @a/seqio.TextLineDataSource()
  preprocessors = [@to/seqio.preprocessors.rekey, @seqio.preprocessors.tokenize,
                   @seqio.CacheDatasetPlaceholder(), @t5.data.preprocessors.span_corruption]
  output_features = {'inputs': @seqio.Feature(), 'targets': @seqio.Feature()}
seqio.TaskRegistry.tasks = [@a/seqio.Task()]
)",
      R"(VOCABULARY = @seqio.PassThroughVocabulary()
seqio.PassThroughVocabulary.size = 100
seqio.Feature.vocabulary = %VOCABULARY
x/tf.io.FixedLenFeature.shape = [2]
x/tf.io.FixedLenFeature.dtype = 'float32'
seqio.TFExampleDataSource:
  split_to_filepattern = {'train': 'x-*'}
  feature_description = {'inputs': 'int32[]', 'targets': 'int64', 'x': @x/tf.io.FixedLenFeature()}
  on_bad_example = 'skip:3'
seqio.TfdsDataSource.tfds_name = 'glue/cola:2.0.0'
seqio.TfdsDataSource.splits = {'train': 'train[:90%]'}
b/seqio.Task.name = 'b'
b/seqio.Task.source = @seqio.TFExampleDataSource()
b/seqio.Task.output_features = {'inputs': @seqio.Feature()}
c/seqio.Task.name = 'c'
c/seqio.Task.source = @seqio.TfdsDataSource()
c/seqio.Task.output_features = {'inputs': @seqio.Feature()}
seqio.TaskRegistry.tasks = [@b/seqio.Task(), @c/seqio.Task()]
seqio.Mixture.name = 'm'
seqio.Mixture.tasks = [('b', 2), 'c']
seqio.MixtureRegistry.mixtures = [@seqio.Mixture()]
)"};
}

}  // namespace quintet

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  testing::allow_errors([&] {
    gin::Config config(names(), {});
    config.parse_text(std::string(reinterpret_cast<const char*>(data), size), "input");
    config.finalize();
    const data::TaskRegistry tasks = data::make_task_registry(config);
    for (const std::string& name : tasks.names()) (void)tasks.get(name)->output_features();
  });
  return 0;
}
