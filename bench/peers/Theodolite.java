import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;

/** The use cases of bench/theodolite/cases.py. The environment names the topics: TOPIC_POWER, TOPIC_GROUPS, TOPIC_FEEDBACK, TOPIC_OUT. */
final class Theodolite {
    record Power(String identifier, long timestamp, double valueInW) { }
    record Value(double value, double square) { }
    record Moments(long count, double sum, double min, double max, double squares) {
        Moments with(Value one) {
            return new Moments(count + 1, sum + one.value(), Math.min(min, one.value()), Math.max(max, one.value()), squares + one.square());
        }

        Statistics statistics() {
            double mean = sum / count;
            return new Statistics(count, sum, min, max, mean, squares / count - mean * mean);
        }
    }
    record Statistics(long count, double sum, double min, double max, double mean, double variance) { }
    record Member(List<String> parents, double value) { }

    private static final Moments NONE = new Moments(0, 0, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY, 0);
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Double> DOUBLE = Serdes.Double();

    private final StreamsBuilder builder = new StreamsBuilder();

    private Theodolite() { }

    static Topology topology(String useCase) {
        Theodolite theodolite = new Theodolite();
        switch (useCase) {
            case "uc1" -> theodolite.uc1();
            case "uc2" -> theodolite.uc2();
            case "uc3" -> theodolite.uc3();
            case "uc4" -> theodolite.uc4();
            default -> throw new IllegalArgumentException(useCase);
        }
        return theodolite.builder.build();
    }

    /** A record of Avro without an id, read field by field as its schema says; what a library does takes longer. */
    private static Power power(byte[] bytes) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        byte[] identifier = new byte[(int) number(buffer)];
        buffer.get(identifier);
        return new Power(new String(identifier, StandardCharsets.UTF_8), number(buffer), buffer.getDouble());
    }

    private static long number(ByteBuffer buffer) {
        long found = 0;
        for (int shift = 0;; shift += 7) {
            byte part = buffer.get();
            found |= (long) (part & 0x7f) << shift;
            if (part >= 0) {
                return found >>> 1 ^ -(found & 1);
            }
        }
    }

    private static <T> Serde<T> json(TypeReference<T> type) {
        return JsonSerde.of(MAPPER, type);
    }

    private static String setting(String name) {
        return System.getenv(name);
    }

    private KStream<String, Power> records() {
        Serde<Power> avro = Serdes.serdeFrom(
            (topic, value) -> {
                throw new UnsupportedOperationException("nothing writes these");
            },
            (topic, bytes) -> bytes == null ? null : power(bytes));
        return builder.stream(setting("TOPIC_POWER"), Consumed.with(TEXT, avro));
    }

    private void uc1() {
        records().to(setting("TOPIC_OUT"), Produced.with(TEXT, json(new TypeReference<Power>() { })));
    }

    private void statistics(KStream<String, Power> records, TimeWindows windows) {
        records.mapValues(p -> new Value(p.valueInW(), p.valueInW() * p.valueInW()))
            .groupByKey(Grouped.with(TEXT, json(new TypeReference<Value>() { })))
            .windowedBy(windows)
            .aggregate(() -> NONE, (key, one, moments) -> moments.with(one),
                       Materialized.with(TEXT, json(new TypeReference<Moments>() { })))
            .toStream((key, moments) -> key.key() + "@" + key.window().start())
            .mapValues(Moments::statistics)
            .to(setting("TOPIC_OUT"), Produced.with(TEXT, json(new TypeReference<Statistics>() { })));
    }

    private void uc2() {
        statistics(records(), TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofMinutes(1)));
    }

    private void uc3() {
        statistics(records().selectKey((key, p) -> key + "|" + p.timestamp() / 3_600_000 % 24),
                   TimeWindows.ofSizeAndGrace(Duration.ofDays(3), Duration.ofDays(30)).advanceBy(Duration.ofHours(3)));
    }

    private void uc4() {
        KTable<String, List<String>> groups = builder.table(
            setting("TOPIC_GROUPS"), Consumed.with(TEXT, json(new TypeReference<List<String>>() { })));
        KStream<String, Double> fedBack = builder.stream(setting("TOPIC_FEEDBACK"), Consumed.with(TEXT, DOUBLE));
        KTable<Windowed<String>, Double> last = records().mapValues(Power::valueInW).merge(fedBack)
            .join(groups, (value, parents) -> new Member(parents, value), Joined.with(TEXT, DOUBLE, null))
            .flatMap((child, member) -> member.parents().stream()
                .map(parent -> KeyValue.pair(parent + "/" + child, member.value())).toList())
            .groupByKey(Grouped.with(TEXT, DOUBLE))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(5), Duration.ofDays(1)))
            .reduce((before, value) -> value, Materialized.with(TEXT, DOUBLE));
        KStream<String, Double> results = last
            .groupBy((member, value) -> KeyValue.pair(
                         member.key().substring(0, member.key().indexOf('/')) + "@" + member.window().start(), value),
                     Grouped.with(TEXT, DOUBLE))
            .reduce(Double::sum, (total, value) -> total - value, Materialized.with(TEXT, DOUBLE))
            .toStream();
        results.to(setting("TOPIC_OUT"), Produced.with(TEXT, DOUBLE));
        results.selectKey((key, value) -> key.substring(0, key.indexOf('@'))).to(setting("TOPIC_FEEDBACK"), Produced.with(TEXT, DOUBLE));
    }
}
