import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.zip.CRC32;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** The topology of bench/shufflebench/shuffle.py. The environment names the topics: TOPIC_RECORDS, TOPIC_OUT. */
final class ShuffleBench {
    private static final int RULES = 1_000;
    private static final long SPACE = 1L << 32;
    private static final long WIDTH = (long) (SPACE * 0.2 / RULES);
    private static final int EVERY = 10;
    private static final int STATE_BYTES = 4 * Long.BYTES;
    private static final String STORE = "states";

    private ShuffleBench() { }

    /** The rules of a number: those between the two edges that it lies between. */
    private static final class Matcher {
        private final long[] edges;
        private final String[][] rules;

        Matcher() {
            long[] starts = new long[RULES];
            TreeSet<Long> found = new TreeSet<>(List.of(0L));
            for (int rule = 0; rule < RULES; rule++) {
                CRC32 sum = new CRC32();
                sum.update(name(rule).getBytes(StandardCharsets.US_ASCII));
                starts[rule] = sum.getValue();
                found.add(starts[rule]);
                found.add((starts[rule] + WIDTH) % SPACE);
            }
            edges = found.stream().mapToLong(Long::longValue).toArray();
            rules = new String[edges.length][];
            for (int at = 0; at < edges.length; at++) {
                List<String> here = new ArrayList<>();
                for (int rule = 0; rule < RULES; rule++) {
                    if (Math.floorMod(edges[at] - starts[rule], SPACE) < WIDTH) {
                        here.add(name(rule));
                    }
                }
                rules[at] = here.toArray(String[]::new);
            }
        }

        private static String name(int rule) {
            return "consumer_" + rule;
        }

        String[] of(byte[] record) {
            int place = Arrays.binarySearch(edges, Integer.toUnsignedLong(ByteBuffer.wrap(record).getInt(Long.BYTES)));
            return rules[place >= 0 ? place : -place - 2];
        }
    }

    private static final class States implements Processor<String, byte[], String, byte[]> {
        private ProcessorContext<String, byte[]> context;
        private KeyValueStore<String, byte[]> states;

        @Override
        public void init(ProcessorContext<String, byte[]> given) {
            context = given;
            states = given.getStateStore(STORE);
        }

        @Override
        public void process(Record<String, byte[]> record) {
            byte[] state = states.get(record.key());
            if (state == null) {
                state = ByteBuffer.allocate(STATE_BYTES).putLong(0).putLong(0).putLong(record.timestamp()).array();
            }
            ByteBuffer buffer = ByteBuffer.wrap(state);
            long count = buffer.getLong(0) + 1;
            buffer.putLong(0, count);
            buffer.putLong(Long.BYTES, buffer.getLong(Long.BYTES) + ByteBuffer.wrap(record.value()).getLong());
            buffer.putLong(3 * Long.BYTES, record.timestamp());
            if (count < EVERY) {
                states.put(record.key(), state);
            } else {
                states.delete(record.key());
                context.forward(record.withValue(state));
            }
        }
    }

    static Topology topology() {
        Serde<String> text = Serdes.String();
        Serde<byte[]> bytes = Serdes.ByteArray();
        Matcher matcher = new Matcher();
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(STORE), text, bytes));
        builder.stream(System.getenv("TOPIC_RECORDS"), Consumed.with(bytes, bytes))
            .flatMap((key, record) -> {
                String[] rules = matcher.of(record);
                List<KeyValue<String, byte[]>> pairs = new ArrayList<>(rules.length);
                for (String rule : rules) {
                    pairs.add(KeyValue.pair(rule, record));
                }
                return pairs;
            })
            .repartition(Repartitioned.with(text, bytes).withName("matches"))
            .process(States::new, STORE)
            .to(System.getenv("TOPIC_OUT"), Produced.with(text, bytes));
        return builder.build();
    }
}
