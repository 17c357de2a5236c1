import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/**
 * What Penstock exchanges topics with: java StreamsProgram BOOTSTRAP APPLICATION_ID STATE_DIR PROGRAM TOPIC...
 * Says RUNNING, and goes on until its standard input ends.
 */
public final class StreamsProgram {
    private static final Duration SIZE = Duration.ofMinutes(1);
    private static final Duration GAP = Duration.ofSeconds(30);
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> LONG = Serdes.Long();
    private static final Serde<Windowed<String>> IN_TIME = WindowedSerdes.timeWindowedSerdeFrom(String.class, SIZE.toMillis());
    private static final Serde<Windowed<String>> IN_SESSION = WindowedSerdes.sessionWindowedSerdeFrom(String.class);

    private static void build(StreamsBuilder builder, String program, String[] topics) {
        switch (program) {
            case "write-windows" -> {
                var hits = builder.stream(topics[0], Consumed.with(TEXT, TEXT)).groupByKey(Grouped.with(TEXT, TEXT));
                hits.windowedBy(TimeWindows.ofSizeWithNoGrace(SIZE)).count()
                    .toStream().to(topics[1], Produced.with(IN_TIME, LONG));
                hits.windowedBy(SessionWindows.ofInactivityGapWithNoGrace(GAP)).count()
                    .toStream().to(topics[2], Produced.with(IN_SESSION, LONG));
            }
            case "read-windows" -> {
                shown(builder.stream(topics[0], Consumed.with(IN_TIME, LONG))).to(topics[2], Produced.with(TEXT, TEXT));
                shown(builder.stream(topics[1], Consumed.with(IN_SESSION, LONG))).to(topics[2], Produced.with(TEXT, TEXT));
            }
            case "counts" -> builder.stream(topics[0], Consumed.with(TEXT, TEXT))
                .groupBy((key, value) -> value, Grouped.with("counts", TEXT, TEXT))
                .count(Materialized.as("counts"))
                .toStream().to(topics[1], Produced.with(TEXT, LONG));
            case "shared" -> {
                var words = builder.stream(topics[0], Consumed.with(TEXT, TEXT));
                words.to(topics[1], Produced.with(TEXT, TEXT));
                words.groupBy((key, value) -> value.substring(0, value.indexOf(':')), Grouped.with(TEXT, TEXT))
                    .count(Materialized.as("counts"))
                    .toStream().to(topics[2], Produced.with(TEXT, LONG));
            }
            default -> throw new IllegalArgumentException(program);
        }
    }

    private static KStream<String, String> shown(KStream<Windowed<String>, Long> counts) {
        return counts.map((key, count) -> KeyValue.pair(
            key.key(), key.window().start() + "-" + key.window().end() + "=" + count));
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 50);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        settings.put(StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, 3_600_000); // for those who want to look at them
        settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, System.getProperty("group.protocol", "classic"));
        StreamsBuilder builder = new StreamsBuilder();
        build(builder, arguments[3], Arrays.copyOfRange(arguments, 4, arguments.length));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                System.out.println("RUNNING");
            }
        });
        streams.start();
        while (System.in.read() >= 0) {
            continue;
        }
        streams.close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP)
            .withTimeout(Duration.ofSeconds(20)));
    }
}
