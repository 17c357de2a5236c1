import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** Values as JSON, by Jackson: reader and writer of the type are made once. */
final class JsonSerde {
    private JsonSerde() { }

    static <T> Serde<T> of(ObjectMapper mapper, TypeReference<T> type) {
        ObjectReader reader = mapper.readerFor(type);
        ObjectWriter writer = mapper.writerFor(type);
        return Serdes.serdeFrom(
            (topic, value) -> {
                try {
                    return value == null ? null : writer.writeValueAsBytes(value);
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            },
            (topic, bytes) -> {
                try {
                    return bytes == null ? null : reader.readValue(bytes);
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            });
    }
}
